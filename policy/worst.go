package policy

import "time"

// Worst is the worst that a policy can do to a client and to an upstream.
type Worst struct {
	// Total is the longest time from the request being sent to the response
	// head: the request timeout, since the last attempt has all the time that
	// is left; Forever without one.
	Total time.Duration

	// Attempts is the most a request can have when all fail at once and the
	// waits are the shortest, so 1 + its retries. It is the amplification of
	// load without a budget. The free repeat after an idle close is not
	// counted: what it retries was not sent.
	Attempts int

	// SlowAttempts is how many a request has when each lasts as long as its
	// timeout lets it and the waits are the longest, and LastBegins is when the
	// last of them begins then. For a backoff that is not Bounded, both this and
	// Attempts hold in 999 of 1000 cases.
	SlowAttempts int
	LastBegins   time.Duration
}

// Worst works out the worst case of p under a request timeout (0 = none) and
// an attempt timeout (0 = none). A Retry-After can make any wait as long as the
// time left, but adds no attempt.
func (p *Policy) Worst(request, attempt time.Duration) Worst {
	w := Worst{Total: request, Attempts: 1, SlowAttempts: 1}
	if request <= 0 {
		w.Total = Forever
	}
	if attempt <= 0 {
		attempt = w.Total
	}
	b := p.Backoff
	if b == nil {
		b = None{}
	}
	fast, _ := p.begun(b, 0)
	_, slow := p.begun(b, attempt)
	for i := range max(p.MaxRetries, 0) {
		if !p.begins(fast(i), w.Total) {
			break
		}
		w.Attempts++
	}
	for i := range max(p.MaxRetries, 0) {
		at := slow(i)
		if !p.begins(at, w.Total) {
			break
		}
		w.SlowAttempts, w.LastBegins = w.SlowAttempts+1, at
	}
	return w
}

// begun are when a retry begins at the earliest and at the latest. Both are
// called for 0, 1, 2, ...
func (p *Policy) begun(b Backoff, attempt time.Duration) (earliest, latest func(i int) time.Duration) {
	o := PlanOptions{Attempt: attempt}
	if !Bounded(b) {
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

// begins reports whether a retry can begin at that time.
func (p *Policy) begins(at, total time.Duration) bool {
	return at < total && (p.Window <= 0 || at <= p.Window)
}

// Amplification is how many times its own load an upstream gets in the long
// run when every request fails: attempts per request, as Worst.Attempts, held
// down by the budget. perSecond is the rate of original requests, for the
// budget's floor; 0 or less leaves the floor out. The burst comes on top once.
func (c BudgetConfig) Amplification(attempts int, perSecond float64) float64 {
	retries := min(max(c.Ratio, 0), maxRatio)
	if perSecond > 0 {
		retries += min(max(c.MinPerSecond, 0), maxMinPerSecond) / perSecond
	}
	return 1 + min(retries, float64(max(attempts, 1)-1))
}
