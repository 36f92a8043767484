package proxy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
)

// Measured against itself switched off, the circuit breaker loses no request.

// Users pause while only requests of a URL arrive that never responds, and come back. All of
// them are served, in a moment.
func TestAHangingURLLocksNobodyOut(t *testing.T) {
	handle := func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			if strings.Contains(headers, "/hang") {
				_, _ = c.Read(make([]byte, 1))
				return
			}
			time.Sleep(time.Millisecond)
			c.say(ok200)
		}
	}
	for name, tc := range map[string]struct {
		rate   int // of hanging requests, per second
		hang   func(i int) string
		change func(*Config)
	}{
		"2 a second":          {2, func(int) string { return "GET /hang" }, func(*Config) {}},
		"100 a second":        {100, func(int) string { return "GET /hang" }, func(*Config) {}},
		"POST, 200 a second":  {200, func(int) string { return "POST /hang" }, func(*Config) {}},
		"each another query":  {20, func(i int) string { return fmt.Sprint("GET /hang?", i) }, func(*Config) {}},
		"each another path":   {20, func(i int) string { return fmt.Sprint("GET /hang/", i) }, func(*Config) {}},
		"fail fast":           {20, func(i int) string { return fmt.Sprint("GET /hang/", i) }, func(c *Config) { c.Default.FailFast = true }},
		"probed by a request": {20, func(int) string { return "GET /hang" }, func(c *Config) { c.Default.Probe.Path = "/ok" }},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, handle, func(c *Config) {
				withBreaker(c)
				c.Default.QueueTimeout, c.Default.AttemptTimeout = 10*time.Second, 0
				tc.change(c)
			}, func(t *testing.T, m *memory) {
				ask := func() {
					began := time.Now()
					c := m.client()
					c.send(get("/ok")).want(200, "ok")
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
						m.client().send(requestText(tc.hang(i)+" HTTP/1.1", "Host: a"))
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
	handle := func(c *upConn) {
		for !down.Load() && c.head() != "" && !down.Load() {
			time.Sleep(5 * time.Millisecond)
			if down.Load() {
				return
			}
			c.say(ok200)
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
			inMemory(t, handle, func(c *Config) {
				withBreaker(c)
				c.Default.QueueTimeout = 20 * time.Second
				c.Default.Policy.Backoff = fixedWait(t, tc.wait)
			}, func(t *testing.T, m *memory) {
				over := time.Now().Add(3*time.Second + lasts)
				var asking sync.WaitGroup
				for range tc.clients {
					asking.Go(func() {
						for time.Now().Before(over) {
							c := m.client()
							c.send(get("/x")).want(200, "ok")
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
	handle := func(c *upConn) {
		if c.head() != "" {
			sent.Add(1)
		}
	}
	inMemory(t, handle, func(c *Config) {
		withBreaker(c)
		c.Default.QueueTimeout, c.Default.RequestTimeout = time.Minute, 0
		c.Default.Policy.Backoff = fixedWait(t, 5*time.Millisecond)
	}, func(t *testing.T, m *memory) {
		for range 10 { // the breaker opens meanwhile
			sent.Store(0)
			m.client().send(get("/x")).want(502, "*")
			if n := sent.Load(); n < 4 || n > 5 {
				t.Errorf("sent %d times", n)
			}
		}
		if m.guard().Breaker == breaker.Closed {
			t.Error("the breaker is closed")
		}
	})
}

// All responses suddenly take 12 s. Clients who wait for 30 s are served, whoever left before.
func TestAnUpstreamThatBecomesSlowIsNotDown(t *testing.T) {
	var slow atomic.Bool
	handle := func(c *upConn) {
		for c.head() != "" {
			time.Sleep(20 * time.Millisecond)
			if slow.Load() {
				time.Sleep(12 * time.Second)
			}
			c.say(ok200)
		}
	}
	inMemory(t, handle, func(c *Config) {
		withBreaker(c)
		c.Default.QueueTimeout, c.Default.AttemptTimeout, c.Default.RequestTimeout = 10*time.Second, 0, 0
	}, func(t *testing.T, m *memory) {
		var asking sync.WaitGroup
		ask := func(n int) {
			for range n {
				asking.Go(func() {
					began := time.Now()
					c := m.client()
					c.send(get("/")).want(200, "ok")
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
			handle := func(c *upConn) {
				for c.head() != "" {
					time.Sleep(10 * time.Millisecond)
					if bad.Load() {
						c.say("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
					} else {
						c.say(ok200)
					}
				}
			}
			inMemory(t, handle, func(c *Config) {
				withBreaker(c)
				c.Default.QueueTimeout, c.Default.Policy.MaxRetries = time.Second, 0
			}, func(t *testing.T, m *memory) {
				var over atomic.Bool
				var asking sync.WaitGroup
				for i := range tc.clients {
					c := m.client()
					asking.Go(func() {
						for n := i; !over.Load(); n += tc.clients {
							c.send(get(fmt.Sprint("/", n%tc.urls)))
							if _, _, err := c.response("GET"); err != nil {
								return
							}
							time.Sleep(30 * time.Millisecond)
						}
					})
				}
				time.Sleep(5 * time.Second)
				bad.Store(true)
				time.Sleep(3 * time.Second)
				if by := m.guard().OpenedBy; by != tc.want {
					t.Errorf("opened by %v, want %v", by, tc.want)
				}
				bad.Store(false)
				time.Sleep(2 * time.Second)
				if g := m.guard(); g.Breaker == breaker.Open || g.Breaker == breaker.HalfOpen {
					t.Errorf("%v after the upstream is back", g.Breaker)
				}
				over.Store(true)
				asking.Wait()
			})
		})
	}
}
