package proxy

import (
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
)

func throttled(c *Config) { c.Default.ClientThrottling = true }

func TestThrottlingRejectsRequestsForAnUpstreamThatRejectsAll(t *testing.T) {
	inMemory(t, script(bad503), func(c *Config) { throttled(c); c.Default.Policy.MaxRetries = 0 }, func(t *testing.T, m *memory) {
		c := m.client()
		turned := 0
		for range 300 {
			res := c.send(get("/")).want(503, "*")
			if res.Header.Get("X-Retryproxy-Reason") == "client_throttled" {
				turned++
				if res.Header.Get("Retry-After") != "1" {
					t.Errorf("header %v", res.Header)
				}
			}
		}
		// At once, 300 requests of which n were sent: about ln 300 = 6 of them.
		if sent := m.up.sends(); sent != 300-turned || sent > 60 {
			t.Errorf("%d sent, %d turned away", sent, turned)
		}
		m.seen.outcome(t, 299)
		n := 0
		for _, o := range m.seen.outcomes {
			if o == policy.OutcomeClientThrottled {
				n++
			}
		}
		if s := m.Stats().Upstreams[0]; n != turned || !s.HasThrottle || s.Throttle < 0.9 {
			t.Errorf("%d outcomes throttled, %d turned away, probability %v", n, turned, s.Throttle)
		}
	})
}

func TestWithoutThrottlingAllAreSent(t *testing.T) {
	inMemory(t, script(bad503), func(c *Config) { c.Default.Policy.MaxRetries = 0 }, func(t *testing.T, m *memory) {
		c := m.client()
		for range 50 {
			c.send(get("/")).want(503, "busy")
		}
		if m.up.sends() != 50 {
			t.Errorf("%d sent", m.up.sends())
		}
	})
}

func TestThrottlingSendsAllToAnUpstreamThatAcceptsThem(t *testing.T) {
	notFound := "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone"
	inMemory(t, script(notFound), throttled, func(t *testing.T, m *memory) {
		c := m.client()
		for range 100 {
			c.send(get("/")).want(404, "none")
		}
		if p := m.Stats().Upstreams[0].Throttle; p != 0 {
			t.Errorf("probability %v", p)
		}
	})
}

// A retry that client-side throttling does not admit is not waited for, costs nothing and leaves
// the client the last response.
func TestAThrottledRetryRelaysTheLastResponse(t *testing.T) {
	inMemory(t, slow(time.Second, bad503), func(c *Config) {
		throttled(c)
		c.Default.Policy.Backoff, _ = backoff.New("fixed", backoff.Options{Base: 2 * time.Second})
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
	}, func(t *testing.T, m *memory) {
		u := m.settings.Load().DefaultRoute.UpstreamState
		ended := m.client().send(get("/")).later()
		time.Sleep(500 * time.Millisecond) // it is sent
		for range 1_000_000 {              // so that only a fluke lets a retry pass
			u.Throttler.Done(false)
		}
		began := time.Now()
		time.Sleep(500 * time.Millisecond)
		res, at := ended()
		if d := at.Sub(began); res.StatusCode != 503 || d != 500*time.Millisecond || res.Header.Get("X-Retryproxy-Reason") != "client_throttled" || res.Header.Get("X-Retryproxy-Attempts") != "1" {
			t.Errorf("%d after %v, %v", res.StatusCode, d, res.Header)
		}
		m.seen.outcome(t, 0)
		if !slices.Equal(m.seen.outcomes, []policy.Outcome{policy.GaveUp(policy.ReasonClientThrottled)}) || len(m.seen.retries) != 0 || m.Stats().Upstreams[0].BudgetTokens != 5 {
			t.Errorf("outcomes %v, retries %v, %v tokens", m.seen.outcomes, m.seen.retries, m.Stats().Upstreams[0].BudgetTokens)
		}
	})
}

// Requests that clients left or broke are no evidence about the upstream.
func TestThrottlingDoesNotCountAbandonedRequests(t *testing.T) {
	inMemory(t, slow(time.Minute, ok200), throttled, func(t *testing.T, m *memory) {
		for range 20 {
			c := m.client().send(get("/"))
			time.Sleep(time.Second)
			c.Close()
		}
		m.seen.outcome(t, 19)
		if p := m.Stats().Upstreams[0].Throttle; p != 0 {
			t.Errorf("probability %v", p)
		}
		time.Sleep(time.Hour) // the handlers' sleeps end
	})
}

// While the breaker is not closed, it alone decides: throttling rejects no request that waits
// there.
func TestThrottlingLeavesAnOutageToTheBreaker(t *testing.T) {
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, func(c *Config) { withBreaker(c); throttled(c) })
	p.dial().send(get("/")) // opens the breaker
	soon(t, "breaker opened", func() bool { return p.guard().Breaker != breaker.Closed })
	for range 30 {
		p.dial().send(get("/"))
	}
	soon(t, "all held", func() bool { return p.guard().Queued >= 30 })
	serveListener(t, permit.open(), script(ok200))
	for i := range 31 {
		if o := p.seen.outcome(t, i); o != policy.OutcomeSuccess && o != policy.OutcomeRecovered {
			t.Errorf("outcome %v", o)
		}
	}
}
