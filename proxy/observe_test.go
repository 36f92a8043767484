package proxy

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/route"
)

func observing(c *Config) { c.Default.DryRun = true }

func TestADryRunCountsTheRetriesItWouldMake(t *testing.T) {
	const observedReason = "gave_up_dry_run"
	response := func(status, more string, body string) string {
		return "HTTP/1.1 " + status + "\r\n" + more + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	for _, tc := range []struct {
		name, request string
		upstream      func(c *upConn)
		change        func(c *Config)
		status        int
		body          string
		would         []policy.Reason
		outcome       string
		takes         time.Duration
	}{
		{name: "a failing response", request: get("/"), upstream: script(bad503), status: 503, body: "busy", would: []policy.Reason{policy.ReasonStatus503}, outcome: observedReason},
		{name: "a good one", request: get("/"), upstream: script(ok200), status: 200, body: "ok", outcome: "success"},
		{name: "no response", request: get("/"), upstream: script(""), status: 502, body: "*", would: []policy.Reason{policy.ReasonReset}, outcome: observedReason},
		{name: "what may not run twice", request: post("x"), upstream: script(bad503), status: 503, body: "busy", outcome: "gave_up_not_idempotent"},
		{name: "a wait that does not fit", request: get("/"), upstream: script(response("503 Busy", "Retry-After: 3600\r\n", "busy")), status: 503, body: "busy", outcome: "gave_up_retry_after_too_long"},
		{name: "an answer too large to hold", request: get("/"), upstream: script(response("500 Oh", "", strings.Repeat("x", 100))), change: func(c *Config) { c.Default.ResponseBufferBytes = 99 },
			status: 500, body: strings.Repeat("x", 100), outcome: "gave_up_response_too_large"},
		{name: "no retries wanted", request: get("/"), upstream: script(bad503), change: func(c *Config) { c.Default.Policy.MaxRetries = 0 }, status: 503, body: "busy", outcome: "gave_up_retries_off"},
		{name: "late and good", request: get("/"), upstream: slow(15*time.Second, ok200), status: 200, body: "ok", would: []policy.Reason{policy.ReasonAttemptTimeout}, outcome: "success", takes: 15 * time.Second},
		{name: "late and failing", request: get("/"), upstream: slow(15*time.Second, bad503), status: 503, body: "busy", would: []policy.Reason{policy.ReasonAttemptTimeout}, outcome: observedReason, takes: 15 * time.Second},
		{name: "late and never", request: get("/"), upstream: slow(time.Minute, ok200), status: 504, body: "*", would: []policy.Reason{policy.ReasonAttemptTimeout}, outcome: observedReason, takes: 30 * time.Second},
		{name: "a key would be made", request: post("x"), upstream: script(bad503), change: func(c *Config) { c.Default.GenerateKey = true }, status: 503, body: "busy", would: []policy.Reason{policy.ReasonStatus503}, outcome: observedReason},
		{name: "a retryproxy asks", request: "GET / HTTP/1.1\r\nHost: a\r\nX-Retryproxy-Attempt: 1\r\n\r\n", upstream: script(bad503), status: 503, body: "busy", would: []policy.Reason{policy.ReasonStatus503}, outcome: observedReason},
		{name: "with a fallback", request: get("/"), upstream: script(bad503), change: func(c *Config) { c.Default.Fallbacks = []Fallback{{Status: 200, Body: []byte("instead")}} },
			status: 503, body: "busy", would: []policy.Reason{policy.ReasonStatus503}, outcome: observedReason},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inMemory(t, tc.upstream, func(c *Config) {
				observing(c)
				c.Default.Guard = breaker.Options{}
				if tc.change != nil {
					tc.change(c)
				}
			}, func(t *testing.T, m *memory) {
				began := time.Now()
				res := m.client().send(tc.request).want(tc.status, tc.body)
				if d := time.Since(began); d != tc.takes {
					t.Errorf("took %v", d)
				}
				for name := range res.Header {
					if strings.HasPrefix(name, "X-Retryproxy") {
						t.Errorf("the response has %s", name)
					}
				}
				if m.up.sends() != 1 || strings.Contains(m.up.head(0), "Idempotency-Key") {
					t.Errorf("%d sends, the first %q", m.up.sends(), m.up.head(0))
				}
				synctest.Wait()
				if !slices.Equal(m.seen.wouldRetry, tc.would) || len(m.seen.outcomes) != 1 || m.seen.outcomes[0].String() != tc.outcome ||
					len(m.seen.retries) != 0 || len(m.seen.classes) != 1 || len(m.seen.held) != 0 {
					t.Errorf("would %v, outcome %v, retries %v, attempts %v, held %v", m.seen.wouldRetry, m.seen.outcomes, m.seen.retries, m.seen.classes, m.seen.held)
				}
				time.Sleep(time.Hour) // the handlers' sleeps end
			})
		})
	}
}

// A retry that an empty budget would refuse is not counted.
func TestADryRunUsesItsOwnBudget(t *testing.T) {
	inMemory(t, script(bad503), func(c *Config) {
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 2}
		tried := c.Default
		tried.Name, tried.Match, tried.DryRun = "tried", route.Match{Path: "/tried"}, true
		c.Routes = []Route{tried}
	}, func(t *testing.T, m *memory) {
		c := m.client()
		for range 5 {
			c.send(get("/tried")).want(503, "busy")
		}
		synctest.Wait()
		exhausted, observed := policy.GaveUp(policy.ReasonBudgetExhausted), policy.GaveUp(policy.ReasonDryRun)
		if len(m.seen.wouldRetry) != 2 || !slices.Equal(m.seen.outcomes, []policy.Outcome{observed, observed, exhausted, exhausted, exhausted}) {
			t.Errorf("would %v, outcomes %v", m.seen.wouldRetry, m.seen.outcomes)
		}
		c.send(get("/")).want(503, "busy") // the other route's budget is untouched
		if n := m.up.sends(); n != 5+3 {
			t.Errorf("%d sends, want the retries of a full budget", n)
		}
	})
}

// No request waits at a breaker or for a permit, and none is rejected.
func TestADryRunQueuesNoRequest(t *testing.T) {
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, func(c *Config) { withBreaker(c); observing(c) })
	c := p.dial()
	for range 30 { // a breaker would hold the second one for 20 s
		c.send(get("/")).want(502, "*")
	}
	if g := p.guard(); g.Breaker != breaker.Closed {
		t.Errorf("%+v", g)
	}
	p.seen.outcome(t, 29)
	defer p.seen.lock()()
	if len(p.seen.held) != 0 || !slices.Equal(p.seen.wouldRetry, slices.Repeat([]policy.Reason{policy.ReasonConnectFailure}, 30)) {
		t.Errorf("held %v, would %v", p.seen.held, p.seen.wouldRetry)
	}
}

func TestADryRunHasNoConcurrencyLimit(t *testing.T) {
	inMemory(t, slow(time.Second, ok200), func(c *Config) {
		observing(c)
		c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
	}, func(t *testing.T, m *memory) {
		began := time.Now()
		first, second := m.client().send(get("/")).later(), m.client().send(get("/")).later()
		for _, ended := range []time.Time{at(first()), at(second())} {
			if d := ended.Sub(began); d != time.Second {
				t.Errorf("took %v", d)
			}
		}
	})
}

func at[T any](_ T, t time.Time) time.Time { return t }

// Rate-limit pauses only reject requests if retries are made.
func TestADryRunRejectsNoRequest(t *testing.T) {
	inMemory(t, script("HTTP/1.1 429 Slow\r\nRetry-After: 50\r\nContent-Length: 4\r\n\r\nslow"), func(c *Config) {
		observing(c)
		c.Default.RateLimitPause = RateLimitPause{SharedBy: admission.Sharing{Route: true}, Max: time.Minute}
	}, func(t *testing.T, m *memory) {
		c := m.client()
		for range 100 {
			c.send(get("/")).want(429, "slow")
		}
		if n := m.up.sends(); n != 100 {
			t.Errorf("%d of 100 were sent", n)
		}
	})
}

func TestAReloadEndsADryRun(t *testing.T) {
	inMemory(t, script(bad503, bad503, ok200), observing, func(t *testing.T, m *memory) {
		c := m.client()
		c.send(get("/")).want(503, "busy")
		next := *m.config
		next.Default.DryRun = false
		if err := m.Reload(&next); err != nil {
			t.Fatal(err)
		}
		if got := c.send(get("/")).want(200, "ok").Header.Get("X-Retryproxy-Attempts"); got != "2" {
			t.Errorf("attempts %q", got)
		}
		if n := m.up.connections(); n != 2 { // the first one was idle, with the upstream's old state
			t.Errorf("%d connections, want 2: the upstream's state was kept", n)
		}
	})
}
