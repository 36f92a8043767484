package upstream

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/dnstest"
)

// byDNS makes a group whose names are asked of the server.
func byDNS(t *testing.T, s *dnstest.Server, upstream string) *Group {
	t.Helper()
	target, err := ParseTarget(upstream)
	if err != nil {
		t.Fatal(err)
	}
	target.DNS = s.Addr
	g := NewGroup(target, Options{})
	t.Cleanup(g.Close)
	return g
}

// Everybody waits for one lookup, so a lost question is asked again before the 5 s of package net.
func TestALostQuestionIsAskedAgainSoon(t *testing.T) {
	dns := dnstest.Start(t)
	dns.Host("app.test", 30, "127.0.0.1")
	dns.SetSilent(true)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	found := make(chan resolution)
	go func() { found <- (&dnsLookup{server: dns.Addr}).host(ctx, "app.test", "80") }()
	for dns.Queries("app.test") == 0 {
		time.Sleep(time.Millisecond)
	}
	dns.SetSilent(false)
	if r := <-found; r.err != nil || len(r.addrs) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestTheTTLIsReadFromTheDNSResponse(t *testing.T) {
	for name, cut := range map[string]bool{"udp": false, "tcp": true} {
		dns := dnstest.Start(t)
		if cut {
			dns.TruncateUDP()
		}
		dns.Host("app.test", 30, "127.0.0.1", "::1")
		a := (&dnsLookup{server: dns.Addr}).host(t.Context(), "app.test", "80")
		if a.ttl != 30*time.Second || a.err != nil || len(a.addrs) != 2 {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestANameIsAskedForAsItsTTLSays(t *testing.T) {
	dns, s := dnstest.Start(t), tcpServer(t)
	port := strconv.Itoa(s.addr.(*net.TCPAddr).Port)
	dns.Host("app.test", 3600, "127.0.0.1")
	g := byDNS(t, dns, "http://app.test:"+port)
	for range 3 {
		_ = get(t, g, GetOptions{Fresh: true}).Close()
	}
	if n := dns.Queries("app.test"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	dns.Host("app.test", 0, "127.0.0.1", "127.0.0.2", "::1")
	_ = get(t, g, GetOptions{Fresh: true, ForceLookup: true}).Close()
	got := endpointAddrs(g)
	if slices.Sort(got); !slices.Equal(got, []string{"127.0.0.1:" + port, "127.0.0.2:" + port, "[::1]:" + port}) {
		t.Errorf("members %v", got)
	}
}

func TestTheShortestTTLCounts(t *testing.T) {
	dns := dnstest.Start(t)
	dns.Host("one.test", 50, "127.0.0.1")
	dns.Host("two.test", 20, "127.0.0.2")
	dns.Service("_http._tcp.app.test", 40, dnstest.Service{Host: "one.test", Port: 1}, dnstest.Service{Host: "two.test", Port: 2})
	a := &dnsLookup{server: dns.Addr}
	got := a.service(t.Context(), "_http._tcp.app.test")
	if got.ttl != 20*time.Second || got.err != nil || len(got.addrs) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestServiceRecordsTellPortPriorityAndWeight(t *testing.T) {
	dns := dnstest.Start(t)
	first, reserve := tcpServer(t), tcpServer(t)
	port := func(s *server) uint16 { return uint16(s.addr.(*net.TCPAddr).Port) }
	dns.Host("one.test", 50, "127.0.0.1")
	dns.Service("_http._tcp.app.test", 40,
		dnstest.Service{Host: "one.test", Port: port(reserve), Priority: 20, Weight: 1},
		dnstest.Service{Host: "one.test", Port: port(first), Priority: 10, Weight: 0},
		dnstest.Service{Host: "none.test", Port: 9, Priority: 1})
	g := byDNS(t, dns, "http+srv://_http._tcp.app.test")
	if at := reached(t, g, 10, GetOptions{}); at[first.addr.String()] != 10 {
		t.Errorf("reached %v, want %s", at, first.addr)
	}
	m := g.endpoint(t, reserve.addr.String())
	if m.priority != 20 || m.weight != 100 || g.endpoint(t, first.addr.String()).weight != 1 {
		t.Errorf("priority %d, weights %d and %d", m.priority, m.weight, g.endpoint(t, first.addr.String()).weight)
	}
}

func TestAServiceThatIsNotOfferedCannotBeReached(t *testing.T) {
	dns := dnstest.Start(t)
	dns.Service("_off._tcp.app.test", 40, dnstest.Service{Host: "", Port: 1})
	dns.Service("_lost._tcp.app.test", 40, dnstest.Service{Host: "none.test", Port: 1})
	for _, name := range []string{"_off._tcp.app.test", "_lost._tcp.app.test", "_none._tcp.app.test"} {
		d := fail(t, byDNS(t, dns, "http+srv://"+name), t.Context(), GetOptions{})
		var cause *net.DNSError
		if d.Kind != KindDNS || d.Addr != name || !errors.As(d, &cause) {
			t.Errorf("%s: %s: %v", name, d.Kind, d)
		}
	}
}

func TestTheHostsFileIsHonoured(t *testing.T) {
	dns, s := dnstest.Start(t), tcpServer(t)
	dns.SetSilent(true)
	g := byDNS(t, dns, "http://localhost:"+strconv.Itoa(s.addr.(*net.TCPAddr).Port))
	if c := get(t, g, GetOptions{}); c.Addr != s.addr.String() || dns.Queries("localhost") != 0 {
		t.Errorf("reached %s, asked the server %d times", c.Addr, dns.Queries("localhost"))
	}
}

func TestMalformedDNSResponseIsIgnored(t *testing.T) {
	a := &dnsLookup{}
	for _, b := range [][]byte{nil, {1}, make([]byte, 12), make([]byte, 600)} {
		a.noteTTL(b)
	}
	if a.ttl() != 0 {
		t.Errorf("it holds for %v", a.ttl())
	}
}
