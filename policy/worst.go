package policy

import "time"

// Worst is the worst that a policy can do to a caller and to an upstream.
type Worst struct {
	// Total is the longest time from the request being sent to the response
	// head: the request timeout, since the last attempt has all the time that
	// is left; Forever without one.
	Total time.Duration

	// Attempts is the most a request can have when all fail at once and the
	// waits are the shortest, so 1 + its retries. It is the amplification of
	// load without a budget. The free repeat after an idle close is not
	// counted: what it repeats was not sent.
	Attempts int

	// SlowAttempts is how many a request has when each lasts as long as its
	// timeout lets it and the waits are the longest, and LastBegins is when the
	// last of them begins then.
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
	fast, slow := walk(b, PlanOptions{}, minOf), walk(b, PlanOptions{Attempt: attempt}, maxOf)
	for i := range max(p.MaxRetries, 0) {
		if _, at := fast(i); !p.begins(at, w.Total) {
			break
		}
		w.Attempts++
	}
	for i := range max(p.MaxRetries, 0) {
		_, at := slow(i)
		if !p.begins(at, w.Total) {
			break
		}
		w.SlowAttempts, w.LastBegins = w.SlowAttempts+1, at
	}
	return w
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
