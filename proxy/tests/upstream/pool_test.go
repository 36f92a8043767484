package upstream

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/route"
)

// manyPooled opens n upstream connections at once and leaves them idle.
func manyPooled(t *testing.T, p *proxytest.Proxy, n int, arrived <-chan struct{}, goOn chan<- struct{}) []*peers.Client {
	t.Helper()
	clients := make([]*peers.Client, n)
	for i := range clients {
		clients[i] = p.Dial().Send(peers.Get("/"))
	}
	for range n {
		peers.Within(t, "a request upstream", arrived)
	}
	close(goOn)
	for _, c := range clients {
		c.Want(200, "ok")
	}
	peers.Soon(t, "all connections idle", func() bool { return p.Stats().Upstreams[0].Pool.Idle == n })
	return clients
}

// After a restart all pooled connections are stale, and no client notices.
func TestARestartOfTheUpstreamCostsNoError(t *testing.T) {
	const n = 64
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("reset=%v", reset), func(t *testing.T) {
			arrived, goOn := make(chan struct{}), make(chan struct{})
			permit := peers.ReservePort(t)
			u := peers.ServeListener(t, permit.Open(), func(c *peers.Conn) {
				c.Head()
				arrived <- struct{}{}
				<-goOn
				c.Say(peers.OK200)
				c.Head()
				if reset {
					c.Reset()
				}
			})
			p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 })
			clients := manyPooled(t, p, n, arrived, goOn)
			if reset {
				u.Each(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })
			}
			u.Stop()
			again := peers.ServeListener(t, permit.Open(), peers.Script(peers.OK200))
			var wg sync.WaitGroup
			for i, c := range clients {
				wg.Go(func() {
					if i%2 == 0 {
						c.Send(peers.Get("/"))
					} else {
						c.Send(peers.Post("hello"))
					}
					if res, body, err := c.Response("GET"); err != nil || res.StatusCode != 200 || body != "ok" {
						t.Errorf("request %d: %v %q %v", i, res, body, err)
					}
				})
			}
			wg.Wait()
			for i := range 2 * n {
				p.WantOutcome(i, policy.OutcomeSuccess)
			}
			if again.Sends() != n || p.Seen.Retried() != 0 {
				t.Errorf("%d sends to the new server and %d retries, want %d and none", again.Sends(), p.Seen.Retried(), n)
			}
		})
	}
}

// blind hides a connection's socket, so that nothing can be seen on it before
// it is written to.
type blind struct{ net.Conn }

func blindDial(c *proxy.Config) {
	c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		nc, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return blind{nc}, nil
	}
}

func TestARequestAfterAnIdleCloseIsResentForFree(t *testing.T) {
	for name, req := range map[string]string{
		"GET":          peers.Get("/"),
		"POST":         peers.Post("hello"),
		"POST chunked": peers.RequestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\n\r\n",
		"large PUT":    peers.RequestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100000") + strings.Repeat("x", 100000),
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			resets := 0
			arrived, goOn := make(chan struct{}), make(chan struct{})
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				headers := c.Head()
				if c.N <= 3 { // three pooled connections that turn stale
					arrived <- struct{}{}
					<-goOn
					c.Say(peers.OK200)
					time.Sleep(20 * time.Millisecond) // lets the proxy read it before the reset
					c.Reset()
					mu.Lock()
					resets++
					mu.Unlock()
					return
				}
				peers.DiscardBody(c, headers)
				c.Say(peers.OK200)
				_, _ = c.EndOfInput()
			})
			p := proxytest.Start(t, u, func(c *proxy.Config) {
				blindDial(c)
				c.Default.Policy.MaxRetries = 0 // it is outside the count
				c.Default.NoBudget = false
				c.Default.Budget = budget.Config{Ratio: 0.01, MinPerSecond: 0.001, Burst: 5}
			})
			p.SetRetryPercent(0) // and no retry in the sense of the switch
			clients := manyPooled(t, p, 3, arrived, goOn)
			peers.Soon(t, "the resets", func() bool { mu.Lock(); defer mu.Unlock(); return resets == 3 })
			tokens := p.Stats().Upstreams[0].BudgetTokens
			res := clients[0].Send(req).Want(200, "ok")
			if got := res.Header.Get("X-Retryproxy-Attempts"); got != "2" {
				t.Errorf("attempts %q, want 2: one on a stale connection, one on a fresh one", got)
			}
			p.WantOutcome(3, policy.OutcomeRecovered)
			if got := fmt.Sprint(p.Seen.Retries, p.Seen.Classes[3:]); got != "[idle_close] [not_sent ok]" {
				t.Errorf("retries and classes %s", got)
			}
			if n := len(p.Seen.Waits); n != 0 {
				t.Errorf("%d waits, want none", n)
			}
			if now := p.Stats().Upstreams[0].BudgetTokens; now < tokens-0.5 {
				t.Errorf("the budget went from %v to %v", tokens, now)
			}
			if u.Sends() != 4 || u.Connections() != 4 {
				t.Errorf("%d sends over %d connections, want 4 over 4", u.Sends(), u.Connections())
			}
		})
	}
}

// A request that the upstream may have received is not retried unless it is idempotent.
func TestAResetAfterTheRequestWasTakenIsNoIdleClose(t *testing.T) {
	for _, polite := range []bool{false, true} {
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			c.Head()
			c.Say(peers.OK200)
			if headers := c.Head(); headers != "" {
				peers.DiscardBody(c, headers)
				if !polite {
					c.Reset()
				}
			}
		})
		p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 1 })
		c := p.Dial()
		c.Send(peers.Get("/")).Want(200, "ok")
		res := c.Send(peers.Post("hello")).Want(502, "*")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "not_idempotent" || u.Sends() != 2 {
			t.Errorf("reason %q, %d sends; want not_idempotent, 2", got, u.Sends())
		}
		c.Send(peers.Get("/")).Want(200, "ok") // a new connection
		c.Send(peers.Get("/")).Want(200, "ok") // taken and reset, then repeated
		p.WantOutcome(3, policy.OutcomeRecovered)
		if got := fmt.Sprint(p.Seen.Retries, p.Seen.Classes); got != "[reset] [ok unknown ok unknown ok]" {
			t.Errorf("retries and classes %s", got)
		}
	}
}

func TestANonRetriableRequestUsesARecentConnection(t *testing.T) {
	put := peers.RequestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100") + strings.Repeat("x", 100)
	proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) { c.Default.RetryBufferBytes = 50 }, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		for i, step := range []struct {
			idle        time.Duration
			request     string
			connections int
		}{
			{0, peers.Get("/"), 1},
			{time.Second, peers.Post("x"), 1},
			{1600 * time.Millisecond, peers.Get("/"), 1}, // can be retried: any age
			{1400 * time.Millisecond, peers.Post("x"), 1},
			{1600 * time.Millisecond, peers.Post("x"), 2}, // must not meet an idle close
			{1600 * time.Millisecond, put, 3},             // idempotent, but not kept
			{1600 * time.Millisecond, peers.RequestText("POST / HTTP/1.1", "Host: a", "Idempotency-Key: k"), 3},
		} {
			time.Sleep(step.idle)
			c.Send(step.request).Want(200, "ok")
			if n := m.Up.Connections(); n != step.connections {
				t.Errorf("step %d: %d upstream connections, want %d", i, n, step.connections)
			}
		}
	})
}

func TestTheUpstreamsKeepAliveTimeoutIsObeyedLessASecond(t *testing.T) {
	response := "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nContent-Length: 2\r\n\r\nok"
	proxytest.InMemory(t, peers.Script(response), peers.AddNothingToResponses, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		c.Send(peers.Get("/")).WantRaw(peers.OK200)
		time.Sleep(3900 * time.Millisecond)
		c.Send(peers.Get("/")).WantRaw(peers.OK200)
		if n := m.Up.Connections(); n != 1 {
			t.Errorf("after 3.9 s: %d upstream connections, want 1", n)
		}
		time.Sleep(4100 * time.Millisecond)
		c.Send(peers.Get("/")).WantRaw(peers.OK200)
		if n := m.Up.Connections(); n != 2 {
			t.Errorf("after 4.1 s: %d upstream connections, want 2", n)
		}
	})
}

// twoAddresses starts upstreams on two addresses of one name, with one port.
func twoAddresses(t *testing.T, first, second func(c *peers.Conn), change func(*proxy.Config)) (p *proxytest.Proxy, a, b *peers.Upstream) {
	t.Helper()
	a = peers.StartUpstream(t, first)
	_, port, _ := net.SplitHostPort(a.Addr().String())
	if second != nil {
		l, err := net.Listen("tcp", "127.0.0.2:"+port)
		if err != nil {
			t.Skipf("no second loopback address: %v", err)
		}
		b = peers.ServeListener(t, l, second)
	}
	p = proxytest.StartTo(t, "http://name.test:"+port, func(c *proxy.Config) {
		c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}, nil
		}
		if change != nil {
			change(c)
		}
	})
	return p, a, b
}

func TestEveryAddressIsTried(t *testing.T) {
	p, a, b := twoAddresses(t, peers.Script(peers.OK200), peers.Script(peers.OK200), nil)
	a.Close()
	res := p.Dial().Send(peers.Post("x")).Want(200, "ok")
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "1" || b.Sends() != 1 {
		t.Errorf("attempts %q, %d sends to the second address; want 1, 1", got, b.Sends())
	}
}

func TestARetryPrefersAnotherAddress(t *testing.T) {
	for name, bad := range map[string]string{"503": peers.Bad503, "reset": "", "malformed": "nonsense\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			responses := peers.Script(bad, peers.OK200) // by whichever of the two, in this order
			p, a, b := twoAddresses(t, responses, responses, nil)
			res := p.Dial().Send(peers.Get("/")).Want(200, "ok")
			if got := res.Header.Get("X-Retryproxy-Attempts"); got != "2" || a.Sends() != 1 || b.Sends() != 1 {
				t.Errorf("attempts %q, %d and %d sends; want 2, 1 and 1", got, a.Sends(), b.Sends())
			}
		})
	}
}

func TestTheNameIsResolvedForEveryDial(t *testing.T) {
	var mu sync.Mutex
	var addr netip.Addr
	at := func(s string) { mu.Lock(); defer mu.Unlock(); addr = netip.MustParseAddr(s) }
	at("127.0.0.1")
	p, a, b := twoAddresses(t, peers.Script(strings.Replace(peers.OK200, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)), peers.Script(peers.OK200), func(c *proxy.Config) {
		c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			mu.Lock()
			defer mu.Unlock()
			return []netip.Addr{addr}, nil
		}
	})
	c := p.Dial()
	c.Send(peers.Get("/")).Want(200, "ok")
	at("127.0.0.2")
	c.Send(peers.Get("/")).Want(200, "ok")
	if a.Sends() != 1 || b.Sends() != 1 {
		t.Errorf("%d and %d sends, want 1 and 1", a.Sends(), b.Sends())
	}
}

func TestADialThatTakesTooLong(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) { peers.DiscardBody(c, c.Head()); c.Reset() })
	dials := 0
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.Default.DialTimeout = 30 * time.Millisecond
		c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials++; dials == 6 {
				return net.Dial(network, addr)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	c := p.Dial()
	res := c.Send(peers.Post("")).Want(504, "*") // not sent: repeated whatever the method
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "4" || res.Close {
		t.Errorf("attempts %q, close %v; want 4 and kept alive", got, res.Close)
	}
	res = c.Send(peers.Post("")).Want(502, "*") // a dial timed out, then one connected and was reset: no timeout any more
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "2" {
		t.Errorf("attempts %q, want 2", got)
	}
}

// Routes whose requests have less time connect in less time, and share everything else.
func TestRoutesWithOtherTimeoutsShareTheirUpstream(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) {
		c.Default.Policy.MaxRetries = 0
		c.Default.DialTimeout = 3 * time.Second
		c.Default.Upstream.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		hasty := c.Default
		hasty.Name, hasty.Match, hasty.DialTimeout, hasty.RequestTimeout, hasty.AttemptTimeout = "hasty", route.Match{Path: "/hasty"}, time.Second, 3*time.Second, time.Second
		c.Routes = []proxy.Route{hasty}
	}, func(t *testing.T, m *proxytest.Memory) {
		if len(m.Stats().Upstreams) != 1 {
			t.Error("the routes do not share an upstream's state")
		}
		for path, timeout := range map[string]time.Duration{"/": 3 * time.Second, "/hasty": time.Second} {
			began := time.Now()
			m.Client().Send(peers.Get(path)).Want(504, "*")
			if took := time.Since(began); took != timeout {
				t.Errorf("%s: connecting ended after %v, want %v", path, took, timeout)
			}
		}
	})
}

// An upstream connection is not reused if its response forbids it or if bytes are left over.
func TestConnectionsThatAreNotUsedAgain(t *testing.T) {
	for name, response := range map[string]string{
		"Connection: close":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
		"HTTP/1.0":                "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"Keep-Alive: timeout=0":   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=0\r\n\r\nok",
		"leftover after length":   peers.OK200 + "x",
		"leftover after chunked":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nx",
		"leftover whole response": peers.OK200 + peers.OK200,
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				if c.Head() == "" {
					return
				}
				c.Say("%s", response)
				_, _ = io.Copy(io.Discard, c) // it would not close by itself
			})
			p := proxytest.Start(t, u, nil)
			c := p.Dial()
			for range 3 {
				c.Send(peers.Get("/")).Want(200, "ok")
			}
			if u.Connections() != 3 {
				t.Errorf("%d upstream connections for 3 requests", u.Connections())
			}
			if s := p.Stats().Upstreams[0].Pool; s.Idle != 0 && s.Reuses != 0 {
				t.Errorf("pool %+v", s)
			}
		})
	}
}

func TestAnUnsolicited408IsAnIdleClose(t *testing.T) {
	said := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		if c.Head() == "" {
			return
		}
		c.Say(peers.OK200)
		if c.N == 1 {
			time.Sleep(20 * time.Millisecond)
			c.Say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			close(said)
			return
		}
		_, _ = c.EndOfInput()
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 })
	c := p.Dial()
	c.Send(peers.Get("/")).Want(200, "ok")
	peers.Within(t, "the 408", said)
	res := c.Send(peers.Post("hello")).Want(200, "ok")
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "1" || u.Sends() != 2 {
		t.Errorf("attempts %q, %d sends; want 1, 2", got, u.Sends())
	}
	if s := p.Stats().Upstreams[0].Pool; s.IdleCloses != 1 || s.Unsolicited != 0 {
		t.Errorf("pool %+v", s)
	}
}
