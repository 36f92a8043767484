package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
)

func TestAddressRemovedFollowsTheName(t *testing.T) {
	for _, tc := range []struct {
		name string
		now  []netip.Addr
		err  error
		left bool
	}{
		{name: "still there", now: addrs("127.0.0.1")},
		{name: "one of several", now: addrs("127.0.0.2", "127.0.0.1")},
		{name: "written otherwise", now: addrs("::ffff:127.0.0.1")},
		{name: "elsewhere", now: addrs("127.0.0.2"), left: true},
		{name: "not known any more", now: nil},
		{name: "the look-up fails", err: errors.New("no name server")},
	} {
		target := resolving(80, "127.0.0.1")
		target.Resolve = func(context.Context, string) ([]netip.Addr, error) { return tc.now, tc.err }
		p := NewGroup(target, Options{})
		if got := p.AddressRemoved(t.Context(), "127.0.0.1:80"); got != tc.left {
			t.Errorf("%s: %v", tc.name, got)
		}
		p.Close()
	}
	for _, fixed := range []string{"http://127.0.0.1", "http://127.0.0.1,http://127.0.0.3"} {
		target, err := ParseTarget(fixed)
		if err != nil {
			t.Fatal(err)
		}
		p := NewGroup(target, Options{})
		if p.AddressRemoved(t.Context(), "127.0.0.2:80") {
			t.Errorf("%s, which is no name, is said to lead elsewhere", fixed)
		}
		p.Close()
	}
}

// What is in use is left to whoever uses it.
func TestIdleConnectionsToRemovedAddressesAreClosed(t *testing.T) {
	s := tcpServer(t)
	ips := addrs("127.0.0.1")
	target := resolving(s.addr.(*net.TCPAddr).Port)
	target.Resolve = func(context.Context, string) ([]netip.Addr, error) { return ips, nil }
	p := makeGroup(t, target, Options{})
	idle, used := get(t, p, GetOptions{}), get(t, p, GetOptions{})
	idle.Release(0)
	ips = addrs("127.0.0.2")
	if !p.AddressRemoved(t.Context(), used.Addr) {
		t.Fatal("the name leads elsewhere, and nothing was noticed")
	}
	if st := p.Stats(); st.Idle != 0 || st.Active != 1 {
		t.Errorf("%d idle and %d active, want 0 and 1", st.Idle, st.Active)
	}
	if _, err := idle.Conn.Write([]byte("x")); err == nil {
		t.Error("the idle one is open")
	}
	if _, err := used.Write([]byte("x")); err != nil {
		t.Errorf("the one in use: %v", err)
	}
	_ = used.Close()
}

// Two names of a list exchange their addresses. Each address then gets the Host of the name that it
// belongs to now.
func TestAnAddressThatMovesToAnotherNameGetsItsHost(t *testing.T) {
	var exchanged atomic.Bool
	target, err := ParseTarget("http://a.test,http://b.test")
	if err != nil {
		t.Fatal(err)
	}
	target.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		last := byte(1)
		if (host == "a.test") == exchanged.Load() {
			last = 2
		}
		return []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, last})}, nil
	}
	target.Dial = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = theirs.Close() })
		return ours, nil
	}
	g := NewGroup(target, Options{})
	defer g.Close()
	for _, want := range []map[string]string{
		{"192.0.2.1:80": "a.test", "192.0.2.2:80": "b.test"},
		{"192.0.2.2:80": "a.test", "192.0.2.1:80": "b.test"},
	} {
		for range 20 {
			c, err := g.Get(t.Context(), GetOptions{Fresh: true, ForceLookup: true})
			if err != nil {
				t.Fatal(err)
			}
			if c.Host() != want[c.Addr] {
				t.Errorf("%s got Host %s", c.Addr, c.Host())
			}
			_ = c.Close()
		}
		exchanged.Store(true)
	}
}
