package breaker

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// moving is an upstream whose name resolves first to one address, then to another. The old one
// becomes silent without closing anything, like a machine that is stopped or cut off.
type moving struct {
	mu     sync.Mutex
	at     string   // what the name leads to
	dialed []string // where each connection leads
	silent bool     // the first address
	asked  map[string]int
}

const oldHome, newHome = "192.0.2.1", "192.0.2.2"

func (m *moving) setUp(c *proxy.Config) {
	peers.WithBreaker(c)
	m.at, m.asked = oldHome, map[string]int{}
	dial := c.Default.Upstream.Dial
	c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return []netip.Addr{netip.MustParseAddr(m.at)}, nil
	}
	c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		host, _, _ := net.SplitHostPort(addr)
		m.dialed = append(m.dialed, host)
		return dial(ctx, network, addr)
	}
}

func (m *moving) handle(c *peers.Conn) {
	for headers := c.Head(); headers != ""; headers = c.Head() {
		m.mu.Lock()
		home := m.dialed[c.N-1]
		m.asked[home]++
		silent := m.silent && home == oldHome
		m.mu.Unlock()
		if !silent {
			time.Sleep(10 * time.Millisecond)
			c.Say(peers.OK200)
		}
	}
}

func (m *moving) sends(home string) int { m.mu.Lock(); defer m.mu.Unlock(); return m.asked[home] }

// fallSilent has the upstream serve, then answer nothing, until its breaker is open
// and a probe hangs which no client waits for any longer.
func (m *moving) fallSilent(t *testing.T, p *proxytest.Memory) {
	t.Helper()
	idle := []*peers.Client{p.Client(), p.Client(), p.Client()}
	for range 100 {
		for _, c := range idle {
			c.Send(peers.Get("/"))
		}
		for _, c := range idle {
			c.Want(200, "ok")
		}
	}
	m.mu.Lock()
	m.silent = true
	m.mu.Unlock()
	var leaving sync.WaitGroup
	for range 100 {
		c := p.Client().Send(peers.Get("/"))
		leaving.Go(func() {
			time.Sleep(2 * time.Second)
			c.Close()
		})
		time.Sleep(50 * time.Millisecond)
	}
	leaving.Wait()
	if g := p.Guard(); g.Breaker != breaker.HalfOpen || g.Probes == 0 {
		t.Fatalf("no probe hangs: %+v", g)
	}
	time.Sleep(5 * time.Second)
}

// A silent upstream gets no second probe for a long time. One that has moved is found as soon as
// its name resolves to the new address, and nothing is sent to the old one after that.
func TestAnUpstreamThatMovedWhileAProbeHangsIsFound(t *testing.T) {
	for name, change := range map[string]func(*proxy.Config){
		"probed by a request": func(*proxy.Config) {},
		"probed by GET":       func(c *proxy.Config) { c.Default.Probe = admission.Probe{Path: peers.ReadyPath} },
	} {
		t.Run(name, func(t *testing.T) {
			var m moving
			proxytest.InMemory(t, m.handle, func(c *proxy.Config) { m.setUp(c); change(c) }, func(t *testing.T, p *proxytest.Memory) {
				m.fallSilent(t, p)
				c := p.Client().Send(peers.Get("/held"))
				time.Sleep(time.Second)
				sends, probes := m.sends(oldHome), p.Guard().Probes
				if probes != 1 {
					t.Errorf("%d probes while one hangs, want no other", probes)
				}
				m.mu.Lock()
				m.at = newHome
				m.mu.Unlock()
				moved := time.Now()
				c.Want(200, "ok")
				if d := time.Since(moved); d > 1100*time.Millisecond {
					t.Errorf("answered %v after the name had changed", d)
				}
				for range 20 {
					p.Client().Send(peers.Get("/")).Want(200, "ok")
				}
				if n := m.sends(oldHome); n != sends {
					t.Errorf("%d more requests went to the address it has left", n-sends)
				}
			})
		})
	}
}

// If the name still resolves to the same address, a hung probe stays the only one.
func TestALookUpAloneSendsNoProbe(t *testing.T) {
	var m moving
	proxytest.InMemory(t, m.handle, m.setUp, func(t *testing.T, p *proxytest.Memory) {
		m.fallSilent(t, p)
		c := p.Client().Send(peers.Get("/held"))
		time.Sleep(10 * time.Second)
		if n := p.Guard().Probes; n != 1 {
			t.Errorf("%d probes, want 1", n)
		}
		c.Close()
	})
}
