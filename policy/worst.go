package policy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// NotCounted names the attempts, beside the first one, that are not among Policy.MaxRetries.
const NotCounted = "probes of an open circuit breaker, retries of what was certainly not processed"

// Worst is the worst case of a policy for a client and an upstream.
type Worst struct {
	// Total is the longest time from sending the request to the response headers. It is the
	// request timeout, since the last attempt has all the time that is left. It is Forever
	// without a timeout.
	Total time.Duration

	// Attempts is the largest number of attempts of a request, if all fail at once and the
	// waits are the shortest: 1 + its retries. It is the load amplification without a
	// budget. It leaves out what is NotCounted.
	Attempts int

	// SlowAttempts is the number of attempts if each lasts as long as its timeout and the
	// waits are the longest. LastBegins is when the last of them starts. For a backoff that
	// is not Bounded, both this and Attempts hold in 999 of 1000 cases.
	SlowAttempts int
	LastBegins   time.Duration
}

// Worst returns the worst case of p under a request timeout and an attempt timeout (0 =
// none). A Retry-After can extend any wait to the time left, but adds no attempt.
func (p *Policy) Worst(request, attempt time.Duration) Worst {
	w := Worst{Total: request, Attempts: 1, SlowAttempts: 1}
	if request <= 0 {
		w.Total = backoff.Forever
	}
	if attempt <= 0 {
		attempt = w.Total
	}
	b := p.Backoff
	if b == nil {
		b = backoff.None{}
	}
	fast, _ := p.startTimes(b, 0)
	_, slow := p.startTimes(b, attempt)
	for i := range max(p.MaxRetries, 0) {
		if fast(i) >= w.Total {
			break
		}
		w.Attempts++
	}
	for i := range max(p.MaxRetries, 0) {
		at := slow(i)
		if at >= w.Total {
			break
		}
		w.SlowAttempts, w.LastBegins = w.SlowAttempts+1, at
	}
	return w
}

// startTimes returns when a retry starts at the earliest and at the latest. Both functions are
// called with 0, 1, 2, ...
func (p *Policy) startTimes(b backoff.Strategy, attempt time.Duration) (earliest, latest func(i int) time.Duration) {
	o := PlanOptions{Attempt: attempt}
	if !backoff.Bounded(b) {
		rows := Plan(b, p.MaxRetries, o)
		return func(i int) time.Duration { return rows[i].Total.Min }, func(i int) time.Duration { return rows[i].Total.Max }
	}
	total := func(next func(i int) (wait, total time.Duration)) func(i int) time.Duration {
		return func(i int) time.Duration {
			_, at := next(i)
			return at
		}
	}
	return total(walk(b, o, minOf)), total(walk(b, o, maxOf))
}
