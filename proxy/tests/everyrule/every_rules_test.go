package everyrule

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// retries sets how many there may be.
func retries(n int) func(*testing.T, *proxy.Config) {
	return func(_ *testing.T, c *proxy.Config) { c.Default.Policy.MaxRetries = n }
}

func retryOn(list string) func(*testing.T, *proxy.Config) {
	return func(t *testing.T, c *proxy.Config) {
		on, err := policy.ParseRetryOn(list)
		if err != nil {
			t.Fatal(err)
		}
		c.Default.Policy.RetryOn = on
	}
}

func waits(d time.Duration) func(*testing.T, *proxy.Config) {
	return func(t *testing.T, c *proxy.Config) { c.Default.Policy.Backoff = peers.FixedWait(t, d) }
}

func and(all ...func(*testing.T, *proxy.Config)) func(*testing.T, *proxy.Config) {
	return func(t *testing.T, c *proxy.Config) {
		for _, set := range all {
			set(t, c)
		}
	}
}

// busy is a response that is retried.
var busy = says(503, "busy")

// notBefore checks that a retry came no earlier than d after the attempt before it.
func notBefore(d time.Duration) func(*run) {
	return func(r *run) {
		all := r.up.all()
		if took := all[1].at.Sub(all[0].at); took < d {
			r.Errorf("repeated after %v, want no earlier than %v", took, d)
		}
	}
}

// recoveredAfter is what comes of one failed attempt and a good one.
func recoveredAfter(class policy.Class, why policy.Reason) want {
	return want{status: 200, body: "ok", sends: 2, outcome: policy.OutcomeRecovered,
		classes: []policy.Class{class, policy.ClassNone}, retries: []policy.Reason{why}}
}

// passedOn is what comes of a response that is passed on.
func passedOn(status, sends int, body string, why policy.Reason) want {
	return want{status: status, body: body, sends: sends, reason: why.String(), outcome: policy.GaveUp(why)}
}

// checked is w with a check of its own.
func (w want) checked(f func(*run)) want {
	w.check = f
	return w
}

// Which responses are retried, how often, and what the client gets in the end.
var responseRules = []rule{
	{name: "a good response", acts: []act{says(200, "ok")}, want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess}},
	{name: "a 404 is a response", acts: []act{says(404, "none")}, want: want{status: 404, body: "none", sends: 1, outcome: policy.OutcomeSuccess}},
	{name: "a 501 is no failure of the moment", acts: []act{says(501, "no")}, want: want{status: 501, body: "no", sends: 1, outcome: policy.GaveUp(policy.ReasonNotInRetryOn)}},
	{name: "429", acts: []act{says(429, "slow"), says(200, "ok")}, want: recoveredAfter(policy.Rejected, policy.ReasonStatus429)},
	{name: "429 to a POST", acts: []act{says(429, "slow"), says(200, "ok")}, call: call{method: "POST"},
		want: recoveredAfter(policy.Rejected, policy.ReasonStatus429)},
	{name: "503 to a POST that means it", acts: []act{busy, says(200, "ok")}, call: call{method: "POST"}, set: peers.RetriesRejected("429,503"),
		want: recoveredAfter(policy.Rejected, policy.ReasonStatus503)},
	{name: "429 to a POST that may not mean it", acts: []act{says(429, "slow"), says(200, "ok")}, call: call{method: "POST"}, set: peers.RetriesRejected("none"),
		want: passedOn(429, 1, "slow", policy.ReasonNotIdempotent)},
	{name: "500", acts: []act{says(500, "oops"), says(200, "ok")}, want: recoveredAfter(policy.Unknown, policy.ReasonStatus500)},
	{name: "502", acts: []act{says(502, "bad"), says(200, "ok")}, want: recoveredAfter(policy.Unknown, policy.ReasonStatus502)},
	{name: "503", acts: []act{busy, says(200, "ok")}, want: recoveredAfter(policy.Unknown, policy.ReasonStatus503)},
	{name: "504", acts: []act{says(504, "late"), says(200, "ok")}, want: recoveredAfter(policy.Unknown, policy.ReasonStatus504)},
	{name: "a status that is listed", set: retryOn("418"), acts: []act{says(418, "tea"), says(200, "ok")},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatusOther)},
	{name: "a field that is listed", set: retryOn("retriable-header:X-Again=yes"), acts: []act{says(200, "not yet", "X-Again", "yes"), says(200, "ok")},
		want: recoveredAfter(policy.Unknown, policy.ReasonHeader)},
	{name: "an event stream that begins with an overload", set: peers.HoldsStreams, call: call{method: "POST"},
		acts: []act{says(200, peers.Overloaded, "Content-Type", peers.EventStreamType), says(200, "ok")}, want: recoveredAfter(policy.Rejected, policy.ReasonStatusOther)},
	{name: "an event stream with an error after content", set: peers.HoldsStreams,
		acts: []act{says(200, peers.FirstText+peers.Overloaded, "Content-Type", peers.EventStreamType)},
		want: want{status: 200, body: peers.FirstText + peers.Overloaded, sends: 1, outcome: policy.OutcomeSuccess}},
	{name: "an event stream whose error may have been work", set: peers.HoldsStreams, call: call{method: "POST"},
		acts: []act{says(200, peers.ServerError, "Content-Type", peers.EventStreamType)}, want: passedOn(200, 1, peers.ServerError, policy.ReasonNotIdempotent)},
	{name: "several failures of several kinds", acts: []act{busy, says(429, ""), resets, says(200, "ok")},
		want: want{status: 200, body: "ok", sends: 4, outcome: policy.OutcomeRecovered,
			retries: []policy.Reason{policy.ReasonStatus503, policy.ReasonStatus429, policy.ReasonReset}}},
	{name: "the last real response when retries end", acts: []act{says(503, "1"), says(503, "2"), says(503, "3"), says(503, "4")},
		want: passedOn(503, 4, "4", policy.ReasonRetriesExhausted)},
	{name: "the held response when later attempts bring none", acts: []act{says(503, "busy", "X-Kept", "1"), resets},
		want: passedOn(503, 4, "busy", policy.ReasonRetriesExhausted).checked(func(r *run) {
			if r.client.result.header.Get("X-Kept") != "1" {
				r.Error("the held response's fields are gone")
			}
		})},
	{name: "the held response with its trailers", acts: []act{streams(503, "busy", "X-Sum", "1"), resets},
		want: passedOn(503, 4, "busy", policy.ReasonRetriesExhausted).checked(wantTrailer)},
	{name: "the held response of unknown length", acts: []act{streams(503, strings.Repeat("busy", 10_000)), hangsUp},
		want: passedOn(503, 4, strings.Repeat("busy", 10_000), policy.ReasonRetriesExhausted)},
	{name: "retries off", set: retries(0), acts: []act{busy}, want: passedOn(503, 1, "busy", policy.ReasonRetriesOff)},
	{name: "a status that is not listed is no failure", set: retryOn("reset"), acts: []act{busy},
		want: want{status: 503, body: "busy", sends: 1, outcome: policy.GaveUp(policy.ReasonNotInRetryOn)}},
	{name: "switched off", before: func(r *run) { r.p.SetRetryPercent(0) }, acts: []act{busy}, want: passedOn(503, 1, "busy", policy.ReasonSwitchedOff)},
	{name: "observed only", set: func(_ *testing.T, c *proxy.Config) { c.Default.DryRun = true }, acts: []act{busy, says(200, "ok")},
		want: want{status: 503, body: "busy", sends: 1, outcome: policy.GaveUp(policy.ReasonDryRun)}},
	{name: "the budget is empty", acts: []act{busy}, want: passedOn(503, 2, "busy", policy.ReasonBudgetExhausted),
		set: func(_ *testing.T, c *proxy.Config) {
			c.Default.NoBudget = false
			c.Default.Budget = budget.Config{Ratio: 0.2, MinPerSecond: 0.001, Burst: 1}
		}},
	{name: "an answer too large to hold is passed on", acts: []act{says(503, strings.Repeat("x", 200<<10)), says(200, "ok")},
		want: passedOn(503, 1, strings.Repeat("x", 200<<10), policy.ReasonResponseTooLarge)},
	{name: "a response of unknown length too large to hold", acts: []act{streams(503, strings.Repeat("x", 200<<10)), says(200, "ok")},
		want: passedOn(503, 1, strings.Repeat("x", 200<<10), policy.ReasonResponseTooLarge)},
	{name: "a proxy further on has given up", acts: []act{says(503, "inner", "X-Retryproxy-Attempts", "4", "X-Retryproxy-Reason", "retries_exhausted")},
		want: want{status: 503, body: "inner", sends: 1, reason: "retries_exhausted", attemptsHeader: 4, outcome: policy.GaveUp(policy.ReasonUpstreamGaveUp)}},
	{name: "a retry of a proxy before us", set: func(_ *testing.T, c *proxy.Config) { c.Default.LayeredRetries = policy.LayeredDeny }, acts: []act{busy},
		call: call{headers: []string{"X-Retryproxy-Attempt", "2"}}, want: passedOn(503, 1, "busy", policy.ReasonLayered)},
	{name: "every attempt says its number", acts: []act{busy, busy, says(200, "ok")},
		want: want{status: 200, body: "ok", sends: 3, outcome: policy.OutcomeRecovered, check: func(r *run) {
			for i, a := range r.up.all() {
				if got := a.header.Get("X-Retryproxy-Attempt"); got != string(rune('1'+i)) {
					r.Errorf("attempt %d says it is %q", i+1, got)
				}
			}
		}}},
}

func wantTrailer(r *run) {
	if got := r.client.result.trailers.Get("X-Sum"); got != "1" {
		r.Errorf("trailers %v", r.client.result.trailers)
	}
}

// methodRule: what becomes of a 503 to a request of this method.
func methodRule(name, method string, repeated bool, set func(*testing.T, *proxy.Config), fields ...string) rule {
	c := rule{name: name, set: set, acts: []act{busy, says(200, "ok")}, call: call{method: method, headers: fields},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503)}
	if !repeated {
		c.want = passedOn(503, 1, "busy", policy.ReasonNotIdempotent)
	}
	if method == http.MethodHead {
		c.want.body = ""
	}
	return c
}

func allowUnsafe(_ *testing.T, c *proxy.Config) { c.Default.Policy.Unsafe = true }

// Which requests may run twice.
var methodRules = []rule{
	methodRule("GET may run twice", "GET", true, nil),
	methodRule("HEAD may run twice", "HEAD", true, nil),
	methodRule("PUT may run twice", "PUT", true, nil),
	methodRule("DELETE may run twice", "DELETE", true, nil),
	methodRule("OPTIONS may run twice", "OPTIONS", true, nil),
	methodRule("POST may not", "POST", false, nil),
	methodRule("PATCH may not", "PATCH", false, nil),
	methodRule("an unknown method may not", "FROB", false, nil),
	methodRule("POST with a key may", "POST", true, nil, "Idempotency-Key", "a"),
	methodRule("POST where the route allows it", "POST", true, allowUnsafe),
	{name: "a generated key stays the same over all attempts", acts: []act{busy, says(200, "ok")}, call: call{method: "POST"},
		set: func(_ *testing.T, c *proxy.Config) { c.Default.GenerateKey = true },
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503).checked(func(r *run) {
			if r.up.all()[0].header.Get("Idempotency-Key") == "" {
				r.Error("no key")
			}
			sameHeaders(r)
		})},
}

// sameHeaders checks that each attempt came with the same fields but for its number.
func sameHeaders(r *run) {
	all := r.up.all()
	for _, a := range all[1:] {
		for name, values := range all[0].header {
			if name != "X-Retryproxy-Attempt" && !slices.Equal(values, a.header[name]) {
				r.Errorf("%s is %q in the first attempt and %q in another", name, values, a.header[name])
			}
		}
	}
}
