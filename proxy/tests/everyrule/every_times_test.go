package everyrule

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
)

func attemptTimeout(d time.Duration) func(*testing.T, *proxy.Config) {
	return func(_ *testing.T, c *proxy.Config) { c.Default.AttemptTimeout = d }
}

func requestTimeout(d time.Duration) func(*testing.T, *proxy.Config) {
	return func(_ *testing.T, c *proxy.Config) { c.Default.RequestTimeout = d }
}

// noWait checks that none was begun.
func noWait(r *run) {
	if n := r.p.Seen.WaitsBegun(); n != 0 {
		r.Errorf("%d waits, want none", n)
	}
}

// later does then after a while.
func later(d time.Duration, then act) act {
	return func(a *arrival) {
		if a.readAll() {
			time.Sleep(d)
			then(a)
		}
	}
}

// inTime is what comes of a request that got no response in its time.
func outOfTime(sends int, why policy.Reason) want {
	return want{status: 504, body: "*", sends: sends, reason: why.String(), outcome: policy.GaveUp(why), givenUp: sends}
}

const brief = 150 * time.Millisecond

// What bounds a request's time, and what waits keep to.
var timeRules = []rule{
	{name: "an attempt timeout is retried", set: and(attemptTimeout(brief), retries(1)), acts: []act{stalls, says(200, "ok")},
		want: func() want {
			w := recoveredAfter(policy.Unknown, policy.ReasonAttemptTimeout)
			w.givenUp = 1
			return w
		}()},
	{name: "an attempt timeout that is not in the list is none", set: and(attemptTimeout(brief), retryOn("5xx")), acts: []act{later(3*brief, says(200, "ok"))},
		want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess}},
	{name: "an attempt that cannot be retried has all the time left", set: attemptTimeout(brief), acts: []act{later(3*brief, says(200, "ok"))},
		call: call{method: "POST", body: []byte("hello")}, want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess}},
	{name: "the last attempt has all the time left", set: and(attemptTimeout(brief), retries(1)), acts: []act{stalls, later(3*brief, says(200, "ok"))},
		want: want{status: 200, body: "ok", sends: 2, outcome: policy.OutcomeRecovered, givenUp: 1}},
	{name: "the request timeout", set: requestTimeout(2 * brief), acts: []act{stalls}, want: outOfTime(1, policy.ReasonDeadline)},
	{name: "the request timeout of a POST", set: requestTimeout(2 * brief), acts: []act{stalls}, call: call{method: "POST", body: []byte("hello")},
		want: outOfTime(1, policy.ReasonNotIdempotent)},
	{name: "the request timeout with a response held", set: requestTimeout(time.Second), acts: []act{busy, stalls},
		want: passedOn(503, 2, "busy", policy.ReasonDeadline)},
	{name: "the request timeout runs from the end of the upload", set: requestTimeout(time.Second), acts: []act{says(200, "ok")},
		call: call{method: "POST", upload: func(_ *run, w io.Writer) error {
			for range 7 {
				if _, err := w.Write([]byte("x")); err != nil {
					return err
				}
				time.Sleep(200 * time.Millisecond)
			}
			return nil
		}}, want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess}},
	{name: "the client's deadline", acts: []act{stalls}, call: call{headers: []string{"X-Request-Timeout", "700ms"}},
		want: outOfTime(1, policy.ReasonDeadline)},
	{name: "the client's deadline as Envoy writes it", acts: []act{stalls}, call: call{headers: []string{"X-Envoy-Expected-Rq-Timeout-Ms", "700"}},
		want: outOfTime(1, policy.ReasonDeadline)},
	{name: "the client's deadline is never longer than ours", set: requestTimeout(700 * time.Millisecond), acts: []act{stalls},
		call: call{headers: []string{"X-Request-Timeout", "300"}}, want: outOfTime(1, policy.ReasonDeadline)},
	{name: "the client's deadline runs during its upload", acts: []act{stalls},
		call:   call{method: "PUT", headers: []string{"X-Request-Timeout", "700ms"}, upload: uploads("x", released, "y", nil)},
		during: func(r *run) { r.p.WantOutcome(0, policy.GaveUp(policy.ReasonDeadline)); r.goOn() },
		want:   outOfTime(1, policy.ReasonDeadline)},
	{name: "a request whose time is over is not sent", call: call{method: "POST", headers: []string{"Grpc-Timeout", "0S"}},
		want: outOfTime(0, policy.ReasonDeadline)},
	{name: "every attempt is told what is left of the time", set: waits(2 * brief), acts: []act{busy, says(200, "ok")},
		call: call{headers: []string{"X-Request-Timeout", "20s"}},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503).checked(func(r *run) {
			first, second := timeLeft(r, 0), timeLeft(r, 1)
			if first > 20*time.Second || second > first-2*brief || second <= 0 {
				r.Errorf("told %v, then %v", first, second)
			}
		})},
	{name: "backoff", set: waits(2 * brief), acts: []act{busy, says(200, "ok")},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503).checked(notBefore(2 * brief))},
	{name: "Retry-After is never early", acts: []act{says(429, "", "Retry-After", "1"), says(200, "ok")},
		want: recoveredAfter(policy.Rejected, policy.ReasonStatus429).checked(notBefore(time.Second))},
	{name: "Retry-After as a date is measured by the response's own clock", acts: []act{func(a *arrival) {
		then := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
		says(503, "", "Date", then.Format(http.TimeFormat), "Retry-After", then.Add(time.Second).Format(http.TimeFormat))(a)
	}, says(200, "ok")}, want: recoveredAfter(policy.Unknown, policy.ReasonStatus503).checked(notBefore(time.Second))},
	{name: "a Retry-After beyond the time left is given to the client at once", acts: []act{says(503, "wait", "Retry-After", "31")},
		want: passedOn(503, 1, "wait", policy.ReasonRetryAfterTooLong).checked(func(r *run) {
			noWait(r)
			if got := r.client.result.header.Get("Retry-After"); got != "31" {
				r.Errorf("Retry-After %q", got)
			}
		})},
	{name: "a Retry-After beyond the client's deadline likewise", acts: []act{says(503, "wait", "Retry-After", "5")},
		call: call{headers: []string{"X-Request-Timeout", "4"}}, want: passedOn(503, 1, "wait", policy.ReasonRetryAfterTooLong).checked(noWait)},
	{name: "a backoff that does not fit the time left is not begun", set: and(waits(20*time.Second), requestTimeout(10*time.Second)), acts: []act{busy},
		want: passedOn(503, 1, "busy", policy.ReasonDeadline).checked(noWait)},
}

// timeLeft is what attempt n, from 0, was told.
func timeLeft(r *run, n int) time.Duration {
	text := r.up.all()[n].header.Get("X-Request-Timeout")
	unit := time.Second
	if ms, ok := strings.CutSuffix(text, "ms"); ok {
		text, unit = ms, time.Millisecond
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64)
	if err != nil {
		r.Errorf("attempt %d was told %q", n+1, text)
	}
	return time.Duration(v * float64(unit))
}
