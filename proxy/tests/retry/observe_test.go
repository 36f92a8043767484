package retry

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
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/route"
)

func observing(c *proxy.Config) { c.Default.DryRun = true }

func TestADryRunCountsTheRetriesItWouldMake(t *testing.T) {
	const observedReason = "gave_up_dry_run"
	response := func(status, more string, body string) string {
		return "HTTP/1.1 " + status + "\r\n" + more + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	for _, tc := range []struct {
		name, request string
		upstream      func(c *peers.Conn)
		change        func(c *proxy.Config)
		status        int
		body          string
		would         []policy.Reason
		outcome       string
		takes         time.Duration
	}{
		{name: "a failing response", request: peers.Get("/"), upstream: peers.Script(peers.Bad503), status: 503, body: "busy", would: []policy.Reason{policy.ReasonStatus503}, outcome: observedReason},
		{name: "a good one", request: peers.Get("/"), upstream: peers.Script(peers.OK200), status: 200, body: "ok", outcome: "success"},
		{name: "no response", request: peers.Get("/"), upstream: peers.Script(""), status: 502, body: "*", would: []policy.Reason{policy.ReasonReset}, outcome: observedReason},
		{name: "what may not run twice", request: peers.Post("x"), upstream: peers.Script(peers.Bad503), status: 503, body: "busy", outcome: "gave_up_not_idempotent"},
		{name: "a wait that does not fit", request: peers.Get("/"), upstream: peers.Script(response("503 Busy", "Retry-After: 3600\r\n", "busy")), status: 503, body: "busy", outcome: "gave_up_retry_after_too_long"},
		{name: "an answer too large to hold", request: peers.Get("/"), upstream: peers.Script(response("500 Oh", "", strings.Repeat("x", 100))), change: func(c *proxy.Config) { c.Default.ResponseBufferBytes = 99 },
			status: 500, body: strings.Repeat("x", 100), outcome: "gave_up_response_too_large"},
		{name: "no retries wanted", request: peers.Get("/"), upstream: peers.Script(peers.Bad503), change: func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 }, status: 503, body: "busy", outcome: "gave_up_retries_off"},
		{name: "late and good", request: peers.Get("/"), upstream: peers.AnswersAfter(15*time.Second, peers.OK200), status: 200, body: "ok", would: []policy.Reason{policy.ReasonAttemptTimeout}, outcome: "success", takes: 15 * time.Second},
		{name: "late and failing", request: peers.Get("/"), upstream: peers.AnswersAfter(15*time.Second, peers.Bad503), status: 503, body: "busy", would: []policy.Reason{policy.ReasonAttemptTimeout}, outcome: observedReason, takes: 15 * time.Second},
		{name: "late and never", request: peers.Get("/"), upstream: peers.AnswersAfter(time.Minute, peers.OK200), status: 504, body: "*", would: []policy.Reason{policy.ReasonAttemptTimeout}, outcome: observedReason, takes: 30 * time.Second},
		{name: "a key would be made", request: peers.Post("x"), upstream: peers.Script(peers.Bad503), change: func(c *proxy.Config) { c.Default.GenerateKey = true }, status: 503, body: "busy", would: []policy.Reason{policy.ReasonStatus503}, outcome: observedReason},
		{name: "a retryproxy asks", request: "GET / HTTP/1.1\r\nHost: a\r\nX-Retryproxy-Attempt: 1\r\n\r\n", upstream: peers.Script(peers.Bad503), status: 503, body: "busy", would: []policy.Reason{policy.ReasonStatus503}, outcome: observedReason},
		{name: "with a fallback", request: peers.Get("/"), upstream: peers.Script(peers.Bad503), change: func(c *proxy.Config) { c.Default.Fallbacks = []proxy.Fallback{{Status: 200, Body: []byte("instead")}} },
			status: 503, body: "busy", would: []policy.Reason{policy.ReasonStatus503}, outcome: observedReason},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proxytest.InMemory(t, tc.upstream, func(c *proxy.Config) {
				observing(c)
				c.Default.Guard = breaker.Options{}
				if tc.change != nil {
					tc.change(c)
				}
			}, func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				res := m.Client().Send(tc.request).Want(tc.status, tc.body)
				if d := time.Since(began); d != tc.takes {
					t.Errorf("took %v", d)
				}
				for name := range res.Header {
					if strings.HasPrefix(name, "X-Retryproxy") {
						t.Errorf("the response has %s", name)
					}
				}
				if m.Up.Sends() != 1 || strings.Contains(m.Up.Head(0), "Idempotency-Key") {
					t.Errorf("%d sends, the first %q", m.Up.Sends(), m.Up.Head(0))
				}
				synctest.Wait()
				if !slices.Equal(m.Seen.WouldRetries, tc.would) || len(m.Seen.Outcomes) != 1 || m.Seen.Outcomes[0].String() != tc.outcome ||
					len(m.Seen.Retries) != 0 || len(m.Seen.Classes) != 1 || len(m.Seen.Held) != 0 {
					t.Errorf("would %v, outcome %v, retries %v, attempts %v, held %v", m.Seen.WouldRetries, m.Seen.Outcomes, m.Seen.Retries, m.Seen.Classes, m.Seen.Held)
				}
				time.Sleep(time.Hour) // the handlers' sleeps end
			})
		})
	}
}

// A retry that an empty budget would refuse is not counted.
func TestADryRunUsesItsOwnBudget(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.Bad503), func(c *proxy.Config) {
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 2}
		tried := c.Default
		tried.Name, tried.Match, tried.DryRun = "tried", route.Match{Path: "/tried"}, true
		c.Routes = []proxy.Route{tried}
	}, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		for range 5 {
			c.Send(peers.Get("/tried")).Want(503, "busy")
		}
		synctest.Wait()
		exhausted, observed := policy.GaveUp(policy.ReasonBudgetExhausted), policy.GaveUp(policy.ReasonDryRun)
		if len(m.Seen.WouldRetries) != 2 || !slices.Equal(m.Seen.Outcomes, []policy.Outcome{observed, observed, exhausted, exhausted, exhausted}) {
			t.Errorf("would %v, outcomes %v", m.Seen.WouldRetries, m.Seen.Outcomes)
		}
		c.Send(peers.Get("/")).Want(503, "busy") // the other route's budget is untouched
		if n := m.Up.Sends(); n != 5+3 {
			t.Errorf("%d sends, want the retries of a full budget", n)
		}
	})
}

// No request waits at a breaker or for a permit, and none is rejected.
func TestADryRunQueuesNoRequest(t *testing.T) {
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, func(c *proxy.Config) { peers.WithBreaker(c); observing(c) })
	c := p.Dial()
	for range 30 { // a breaker would hold the second one for 20 s
		c.Send(peers.Get("/")).Want(502, "*")
	}
	if g := p.Guard(); g.Breaker != breaker.Closed {
		t.Errorf("%+v", g)
	}
	p.Seen.Outcome(t, 29)
	defer p.Seen.Lock()()
	if len(p.Seen.Held) != 0 || !slices.Equal(p.Seen.WouldRetries, slices.Repeat([]policy.Reason{policy.ReasonConnectFailure}, 30)) {
		t.Errorf("held %v, would %v", p.Seen.Held, p.Seen.WouldRetries)
	}
}

func TestADryRunHasNoConcurrencyLimit(t *testing.T) {
	proxytest.InMemory(t, peers.AnswersAfter(time.Second, peers.OK200), func(c *proxy.Config) {
		observing(c)
		c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
	}, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		first, second := m.Client().Send(peers.Get("/")).Later(), m.Client().Send(peers.Get("/")).Later()
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
	proxytest.InMemory(t, peers.Script("HTTP/1.1 429 Slow\r\nRetry-After: 50\r\nContent-Length: 4\r\n\r\nslow"), func(c *proxy.Config) {
		observing(c)
		c.Default.RateLimitPause = proxy.RateLimitPause{SharedBy: admission.Sharing{Route: true}, Max: time.Minute}
	}, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		for range 100 {
			c.Send(peers.Get("/")).Want(429, "slow")
		}
		if n := m.Up.Sends(); n != 100 {
			t.Errorf("%d of 100 were sent", n)
		}
	})
}

func TestAReloadEndsADryRun(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.Bad503, peers.Bad503, peers.OK200), observing, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		c.Send(peers.Get("/")).Want(503, "busy")
		next := *m.Config
		next.Default.DryRun = false
		if err := m.Reload(&next); err != nil {
			t.Fatal(err)
		}
		if got := c.Send(peers.Get("/")).Want(200, "ok").Header.Get("X-Retryproxy-Attempts"); got != "2" {
			t.Errorf("attempts %q", got)
		}
		if n := m.Up.Connections(); n != 2 { // the first one was idle, with the upstream's old state
			t.Errorf("%d connections, want 2: the upstream's state was kept", n)
		}
	})
}
