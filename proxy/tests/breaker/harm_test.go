package breaker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// Measured against itself switched off, the circuit breaker loses no request.

// Users pause while only requests of a URL arrive that never responds, and come back. All of
// them are served, in a moment.
func TestAHangingURLLocksNobodyOut(t *testing.T) {
	handle := func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.Contains(headers, "/hang") {
				_, _ = c.Read(make([]byte, 1))
				return
			}
			time.Sleep(time.Millisecond)
			c.Say(peers.OK200)
		}
	}
	for name, tc := range map[string]struct {
		rate   int // of hanging requests, per second
		hang   func(i int) string
		change func(*proxy.Config)
	}{
		"2 a second":          {2, func(int) string { return "GET /hang" }, func(*proxy.Config) {}},
		"100 a second":        {100, func(int) string { return "GET /hang" }, func(*proxy.Config) {}},
		"POST, 200 a second":  {200, func(int) string { return "POST /hang" }, func(*proxy.Config) {}},
		"each another query":  {20, func(i int) string { return fmt.Sprint("GET /hang?", i) }, func(*proxy.Config) {}},
		"each another path":   {20, func(i int) string { return fmt.Sprint("GET /hang/", i) }, func(*proxy.Config) {}},
		"fail fast":           {20, func(i int) string { return fmt.Sprint("GET /hang/", i) }, func(c *proxy.Config) { c.Default.FailFast = true }},
		"probed by a request": {20, func(int) string { return "GET /hang" }, func(c *proxy.Config) { c.Default.Probe.Path = "/ok" }},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.WithBreaker(c)
				c.Default.QueueTimeout, c.Default.AttemptTimeout = 10*time.Second, 0
				tc.change(c)
			}, func(t *testing.T, m *proxytest.Memory) {
				ask := func() {
					began := time.Now()
					c := m.Client()
					c.Send(peers.Get("/ok")).Want(200, "ok")
					c.Close()
					if took := time.Since(began); took > 600*time.Millisecond {
						t.Errorf("served after %v", took)
					}
				}
				var asking sync.WaitGroup
				users := func(n int) {
					for range n {
						asking.Go(ask)
						time.Sleep(100 * time.Millisecond)
					}
				}
				users(40)
				var over atomic.Bool
				asking.Go(func() {
					for i := 0; !over.Load(); i++ {
						m.Client().Send(peers.RequestText(tc.hang(i)+" HTTP/1.1", "Host: a"))
						time.Sleep(time.Second / time.Duration(tc.rate))
					}
				})
				time.Sleep(3 * time.Second)
				users(80)
				over.Store(true)
				asking.Wait()
			})
		})
	}
}

// Something in front of the upstream accepts connections while the upstream is down, and closes them.
// No request is lost that may be sent twice.
func TestAnOutageBehindSomethingThatAcceptsLosesNothing(t *testing.T) {
	var down atomic.Bool
	handle := func(c *peers.Conn) {
		for !down.Load() && c.Head() != "" && !down.Load() {
			time.Sleep(5 * time.Millisecond)
			if down.Load() {
				return
			}
			c.Say(peers.OK200)
		}
	}
	for _, tc := range []struct {
		lasts, wait, pause time.Duration // wait is the backoff, pause is that of a client
		clients            int
	}{
		{lasts: 1500 * time.Millisecond, wait: 50 * time.Millisecond, pause: 20 * time.Millisecond, clients: 8},
		{lasts: 5 * time.Second, wait: 50 * time.Millisecond, pause: 20 * time.Millisecond, clients: 8},
		{lasts: 5 * time.Second, wait: 5 * time.Millisecond, pause: 20 * time.Millisecond, clients: 8},
		{lasts: 5 * time.Second, wait: time.Millisecond, pause: time.Second, clients: 1},
	} {
		lasts := tc.lasts
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			down.Store(false)
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.WithBreaker(c)
				c.Default.QueueTimeout = 20 * time.Second
				c.Default.Policy.Backoff = peers.FixedWait(t, tc.wait)
			}, func(t *testing.T, m *proxytest.Memory) {
				over := time.Now().Add(3*time.Second + lasts)
				var asking sync.WaitGroup
				for range tc.clients {
					asking.Go(func() {
						for time.Now().Before(over) {
							c := m.Client()
							c.Send(peers.Get("/x")).Want(200, "ok")
							c.Close()
							time.Sleep(tc.pause)
						}
					})
				}
				time.Sleep(2 * time.Second)
				down.Store(true)
				time.Sleep(lasts)
				down.Store(false)
				asking.Wait()
			})
		})
	}
}

// The upstream reads a request and closes its connection without a response, as if the request killed it. It
// gets the request once more than there are retries at most, however many times its breaker probes it.
func TestARequestThatIsLostAgainAndAgainIsGivenUp(t *testing.T) {
	var sent atomic.Int32
	handle := func(c *peers.Conn) {
		if c.Head() != "" {
			sent.Add(1)
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.QueueTimeout, c.Default.RequestTimeout = time.Minute, 0
		c.Default.Policy.Backoff = peers.FixedWait(t, 5*time.Millisecond)
	}, func(t *testing.T, m *proxytest.Memory) {
		for range 10 { // the breaker opens meanwhile
			sent.Store(0)
			m.Client().Send(peers.Get("/x")).Want(502, "*")
			if n := sent.Load(); n < 4 || n > 5 {
				t.Errorf("sent %d times", n)
			}
		}
		if m.Guard().Breaker == breaker.Closed {
			t.Error("the breaker is closed")
		}
	})
}

// All responses suddenly take 12 s. Clients who wait for 30 s are served, whoever left before.
func TestAnUpstreamThatBecomesSlowIsNotDown(t *testing.T) {
	var slow atomic.Bool
	handle := func(c *peers.Conn) {
		for c.Head() != "" {
			time.Sleep(20 * time.Millisecond)
			if slow.Load() {
				time.Sleep(12 * time.Second)
			}
			c.Say(peers.OK200)
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.QueueTimeout, c.Default.AttemptTimeout, c.Default.RequestTimeout = 10*time.Second, 0, 0
	}, func(t *testing.T, m *proxytest.Memory) {
		var asking sync.WaitGroup
		ask := func(n int) {
			for range n {
				asking.Go(func() {
					began := time.Now()
					c := m.Client()
					c.Send(peers.Get("/")).Want(200, "ok")
					c.Close()
					if took := time.Since(began); took > 30*time.Second {
						t.Errorf("served after %v", took)
					}
				})
				time.Sleep(20 * time.Millisecond)
			}
		}
		ask(500)
		slow.Store(true)
		ask(1500)
		asking.Wait()
	})
}

// Nothing but 500 comes, of several URLs and for several clients: the breaker opens. With one URL
// it stays closed.
func TestNothingBut500OpensTheBreaker(t *testing.T) {
	for name, tc := range map[string]struct {
		urls, clients int
		want          breaker.OpenedBy
	}{
		"eight URLs":  {8, 5, breaker.OpenedByFailing},
		"new URLs":    {1 << 20, 5, breaker.OpenedByFailing},
		"one URL":     {1, 5, breaker.OpenedByNothing},
		"one client":  {8, 1, breaker.OpenedByNothing},
		"two clients": {8, 2, breaker.OpenedByNothing},
	} {
		t.Run(name, func(t *testing.T) {
			var bad atomic.Bool
			handle := func(c *peers.Conn) {
				for c.Head() != "" {
					time.Sleep(10 * time.Millisecond)
					if bad.Load() {
						c.Say("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
					} else {
						c.Say(peers.OK200)
					}
				}
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.WithBreaker(c)
				c.Default.QueueTimeout, c.Default.Policy.MaxRetries = time.Second, 0
			}, func(t *testing.T, m *proxytest.Memory) {
				var over atomic.Bool
				var asking sync.WaitGroup
				for i := range tc.clients {
					c := m.Client()
					asking.Go(func() {
						for n := i; !over.Load(); n += tc.clients {
							c.Send(peers.Get(fmt.Sprint("/", n%tc.urls)))
							if _, _, err := c.Response("GET"); err != nil {
								return
							}
							time.Sleep(30 * time.Millisecond)
						}
					})
				}
				time.Sleep(5 * time.Second)
				bad.Store(true)
				time.Sleep(3 * time.Second)
				if by := m.Guard().OpenedBy; by != tc.want {
					t.Errorf("opened by %v, want %v", by, tc.want)
				}
				bad.Store(false)
				time.Sleep(2 * time.Second)
				if g := m.Guard(); g.Breaker == breaker.Open || g.Breaker == breaker.HalfOpen {
					t.Errorf("%v after the upstream is back", g.Breaker)
				}
				over.Store(true)
				asking.Wait()
			})
		})
	}
}
