package proxy

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
	"github.com/retryproxy/retryproxy/proxy/route"
)

// manyPooled opens n upstream connections at once and leaves them idle.
func manyPooled(t *testing.T, p *testProxy, n int, arrived <-chan struct{}, goOn chan<- struct{}) []*client {
	t.Helper()
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = p.dial().send(get("/"))
	}
	for range n {
		within(t, "a request upstream", arrived)
	}
	close(goOn)
	for _, c := range clients {
		c.want(200, "ok")
	}
	soon(t, "all connections idle", func() bool { return p.Stats().Upstreams[0].Pool.Idle == n })
	return clients
}

// After a restart all pooled connections are stale, and no client notices.
func TestARestartOfTheUpstreamCostsNoError(t *testing.T) {
	const n = 64
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("reset=%v", reset), func(t *testing.T) {
			arrived, goOn := make(chan struct{}), make(chan struct{})
			permit := reservePort(t)
			u := serveListener(t, permit.open(), func(c *upConn) {
				c.head()
				arrived <- struct{}{}
				<-goOn
				c.say(ok200)
				c.head()
				if reset {
					c.reset()
				}
			})
			p := startProxy(t, u, func(c *Config) { c.Default.Policy.MaxRetries = 0 })
			clients := manyPooled(t, p, n, arrived, goOn)
			if reset {
				u.each(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })
			}
			u.stop()
			again := serveListener(t, permit.open(), script(ok200))
			var wg sync.WaitGroup
			for i, c := range clients {
				wg.Go(func() {
					if i%2 == 0 {
						c.send(get("/"))
					} else {
						c.send(post("hello"))
					}
					if res, body, err := c.response("GET"); err != nil || res.StatusCode != 200 || body != "ok" {
						t.Errorf("request %d: %v %q %v", i, res, body, err)
					}
				})
			}
			wg.Wait()
			for i := range 2 * n {
				p.wantOutcome(i, policy.OutcomeSuccess)
			}
			if again.sends() != n || p.seen.retried() != 0 {
				t.Errorf("%d sends to the new server and %d retries, want %d and none", again.sends(), p.seen.retried(), n)
			}
		})
	}
}

// blind hides a connection's socket, so that nothing can be seen on it before
// it is written to.
type blind struct{ net.Conn }

func blindDial(c *Config) {
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
		"GET":          get("/"),
		"POST":         post("hello"),
		"POST chunked": requestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\n\r\n",
		"large PUT":    requestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100000") + strings.Repeat("x", 100000),
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			resets := 0
			arrived, goOn := make(chan struct{}), make(chan struct{})
			u := startUpstream(t, func(c *upConn) {
				headers := c.head()
				if c.n <= 3 { // three pooled connections that turn stale
					arrived <- struct{}{}
					<-goOn
					c.say(ok200)
					time.Sleep(20 * time.Millisecond) // lets the proxy read it before the reset
					c.reset()
					mu.Lock()
					resets++
					mu.Unlock()
					return
				}
				discardBody(c, headers)
				c.say(ok200)
				_, _ = c.endOfInput()
			})
			p := startProxy(t, u, func(c *Config) {
				blindDial(c)
				c.Default.Policy.MaxRetries = 0 // it is outside the count
				c.Default.NoBudget = false
				c.Default.Budget = budget.Config{Ratio: 0.01, MinPerSecond: 0.001, Burst: 5}
			})
			p.SetRetryPercent(0) // and no retry in the sense of the switch
			clients := manyPooled(t, p, 3, arrived, goOn)
			soon(t, "the resets", func() bool { mu.Lock(); defer mu.Unlock(); return resets == 3 })
			tokens := p.Stats().Upstreams[0].BudgetTokens
			res := clients[0].send(req).want(200, "ok")
			if got := res.Header.Get("X-Retryproxy-Attempts"); got != "2" {
				t.Errorf("attempts %q, want 2: one on a stale connection, one on a fresh one", got)
			}
			p.wantOutcome(3, policy.OutcomeRecovered)
			if got := fmt.Sprint(p.seen.retries, p.seen.classes[3:]); got != "[idle_close] [not_sent ok]" {
				t.Errorf("retries and classes %s", got)
			}
			if n := len(p.seen.waits); n != 0 {
				t.Errorf("%d waits, want none", n)
			}
			if now := p.Stats().Upstreams[0].BudgetTokens; now < tokens-0.5 {
				t.Errorf("the budget went from %v to %v", tokens, now)
			}
			if u.sends() != 4 || u.connections() != 4 {
				t.Errorf("%d sends over %d connections, want 4 over 4", u.sends(), u.connections())
			}
		})
	}
}

// A request that the upstream may have received is not retried unless it is idempotent.
func TestAResetAfterTheRequestWasTakenIsNoIdleClose(t *testing.T) {
	for _, polite := range []bool{false, true} {
		u := startUpstream(t, func(c *upConn) {
			c.head()
			c.say(ok200)
			if headers := c.head(); headers != "" {
				discardBody(c, headers)
				if !polite {
					c.reset()
				}
			}
		})
		p := startProxy(t, u, func(c *Config) { c.Default.Policy.MaxRetries = 1 })
		c := p.dial()
		c.send(get("/")).want(200, "ok")
		res := c.send(post("hello")).want(502, "*")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "not_idempotent" || u.sends() != 2 {
			t.Errorf("reason %q, %d sends; want not_idempotent, 2", got, u.sends())
		}
		c.send(get("/")).want(200, "ok") // a new connection
		c.send(get("/")).want(200, "ok") // taken and reset, then repeated
		p.wantOutcome(3, policy.OutcomeRecovered)
		if got := fmt.Sprint(p.seen.retries, p.seen.classes); got != "[reset] [ok unknown ok unknown ok]" {
			t.Errorf("retries and classes %s", got)
		}
	}
}

func TestANonRetriableRequestUsesARecentConnection(t *testing.T) {
	put := requestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100") + strings.Repeat("x", 100)
	inMemory(t, script(ok200), func(c *Config) { c.Default.RetryBufferBytes = 50 }, func(t *testing.T, m *memory) {
		c := m.client()
		for i, step := range []struct {
			idle        time.Duration
			request     string
			connections int
		}{
			{0, get("/"), 1},
			{time.Second, post("x"), 1},
			{1600 * time.Millisecond, get("/"), 1}, // can be retried: any age
			{1400 * time.Millisecond, post("x"), 1},
			{1600 * time.Millisecond, post("x"), 2}, // must not meet an idle close
			{1600 * time.Millisecond, put, 3},       // idempotent, but not kept
			{1600 * time.Millisecond, requestText("POST / HTTP/1.1", "Host: a", "Idempotency-Key: k"), 3},
		} {
			time.Sleep(step.idle)
			c.send(step.request).want(200, "ok")
			if n := m.up.connections(); n != step.connections {
				t.Errorf("step %d: %d upstream connections, want %d", i, n, step.connections)
			}
		}
	})
}

func TestTheUpstreamsKeepAliveTimeoutIsObeyedLessASecond(t *testing.T) {
	response := "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nContent-Length: 2\r\n\r\nok"
	inMemory(t, script(response), bare, func(t *testing.T, m *memory) {
		c := m.client()
		c.send(get("/")).wantRaw(ok200)
		time.Sleep(3900 * time.Millisecond)
		c.send(get("/")).wantRaw(ok200)
		if n := m.up.connections(); n != 1 {
			t.Errorf("after 3.9 s: %d upstream connections, want 1", n)
		}
		time.Sleep(4100 * time.Millisecond)
		c.send(get("/")).wantRaw(ok200)
		if n := m.up.connections(); n != 2 {
			t.Errorf("after 4.1 s: %d upstream connections, want 2", n)
		}
	})
}

// twoAddresses starts upstreams on two addresses of one name, with one port.
func twoAddresses(t *testing.T, first, second func(c *upConn), change func(*Config)) (p *testProxy, a, b *fakeUpstream) {
	t.Helper()
	a = startUpstream(t, first)
	_, port, _ := net.SplitHostPort(a.Addr().String())
	if second != nil {
		l, err := net.Listen("tcp", "127.0.0.2:"+port)
		if err != nil {
			t.Skipf("no second loopback address: %v", err)
		}
		b = serveListener(t, l, second)
	}
	p = startProxyTo(t, "http://name.test:"+port, func(c *Config) {
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
	p, a, b := twoAddresses(t, script(ok200), script(ok200), nil)
	a.Close()
	res := p.dial().send(post("x")).want(200, "ok")
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "1" || b.sends() != 1 {
		t.Errorf("attempts %q, %d sends to the second address; want 1, 1", got, b.sends())
	}
}

func TestARetryPrefersAnotherAddress(t *testing.T) {
	for name, bad := range map[string]string{"503": bad503, "reset": "", "malformed": "nonsense\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			responses := script(bad, ok200) // by whichever of the two, in this order
			p, a, b := twoAddresses(t, responses, responses, nil)
			res := p.dial().send(get("/")).want(200, "ok")
			if got := res.Header.Get("X-Retryproxy-Attempts"); got != "2" || a.sends() != 1 || b.sends() != 1 {
				t.Errorf("attempts %q, %d and %d sends; want 2, 1 and 1", got, a.sends(), b.sends())
			}
		})
	}
}

func TestTheNameIsResolvedForEveryDial(t *testing.T) {
	var mu sync.Mutex
	var addr netip.Addr
	at := func(s string) { mu.Lock(); defer mu.Unlock(); addr = netip.MustParseAddr(s) }
	at("127.0.0.1")
	p, a, b := twoAddresses(t, script(strings.Replace(ok200, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)), script(ok200), func(c *Config) {
		c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			mu.Lock()
			defer mu.Unlock()
			return []netip.Addr{addr}, nil
		}
	})
	c := p.dial()
	c.send(get("/")).want(200, "ok")
	at("127.0.0.2")
	c.send(get("/")).want(200, "ok")
	if a.sends() != 1 || b.sends() != 1 {
		t.Errorf("%d and %d sends, want 1 and 1", a.sends(), b.sends())
	}
}

func TestADialThatTakesTooLong(t *testing.T) {
	u := startUpstream(t, func(c *upConn) { discardBody(c, c.head()); c.reset() })
	dials := 0
	p := startProxy(t, u, func(c *Config) {
		c.Default.DialTimeout = 30 * time.Millisecond
		c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials++; dials == 6 {
				return net.Dial(network, addr)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	c := p.dial()
	res := c.send(post("")).want(504, "*") // not sent: repeated whatever the method
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "4" || res.Close {
		t.Errorf("attempts %q, close %v; want 4 and kept alive", got, res.Close)
	}
	res = c.send(post("")).want(502, "*") // a dial timed out, then one connected and was reset: no timeout any more
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "2" {
		t.Errorf("attempts %q, want 2", got)
	}
}

// Routes whose requests have less time connect in less time, and share everything else.
func TestRoutesWithOtherTimeoutsShareTheirUpstream(t *testing.T) {
	inMemory(t, script(ok200), func(c *Config) {
		c.Default.Policy.MaxRetries = 0
		c.Default.DialTimeout = 3 * time.Second
		c.Default.Upstream.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		hasty := c.Default
		hasty.Name, hasty.Match, hasty.DialTimeout, hasty.RequestTimeout, hasty.AttemptTimeout = "hasty", route.Match{Path: "/hasty"}, time.Second, 3*time.Second, time.Second
		c.Routes = []Route{hasty}
	}, func(t *testing.T, m *memory) {
		if len(m.Stats().Upstreams) != 1 {
			t.Error("the routes do not share an upstream's state")
		}
		for path, timeout := range map[string]time.Duration{"/": 3 * time.Second, "/hasty": time.Second} {
			began := time.Now()
			m.client().send(get(path)).want(504, "*")
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
		"leftover after length":   ok200 + "x",
		"leftover after chunked":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nx",
		"leftover whole response": ok200 + ok200,
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpstream(t, func(c *upConn) {
				if c.head() == "" {
					return
				}
				c.say("%s", response)
				_, _ = io.Copy(io.Discard, c) // it would not close by itself
			})
			p := startProxy(t, u, nil)
			c := p.dial()
			for range 3 {
				c.send(get("/")).want(200, "ok")
			}
			if u.connections() != 3 {
				t.Errorf("%d upstream connections for 3 requests", u.connections())
			}
			if s := p.Stats().Upstreams[0].Pool; s.Idle != 0 && s.Reuses != 0 {
				t.Errorf("pool %+v", s)
			}
		})
	}
}

func TestAnUnsolicited408IsAnIdleClose(t *testing.T) {
	said := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		if c.head() == "" {
			return
		}
		c.say(ok200)
		if c.n == 1 {
			time.Sleep(20 * time.Millisecond)
			c.say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			close(said)
			return
		}
		_, _ = c.endOfInput()
	})
	p := startProxy(t, u, func(c *Config) { c.Default.Policy.MaxRetries = 0 })
	c := p.dial()
	c.send(get("/")).want(200, "ok")
	within(t, "the 408", said)
	res := c.send(post("hello")).want(200, "ok")
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "1" || u.sends() != 2 {
		t.Errorf("attempts %q, %d sends; want 1, 2", got, u.sends())
	}
	if s := p.Stats().Upstreams[0].Pool; s.IdleCloses != 1 || s.Unsolicited != 0 {
		t.Errorf("pool %+v", s)
	}
}
