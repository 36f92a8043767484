package breaker

import "time"

// lossBurst detects an upstream that loses everything in flight at once, as a killed
// process does: nearly all requests sent before the first loss are lost too.
//
// It is checked before the failure share of the last second or five, because earlier
// successes still count there. A breaker that it opens makes a probe due at once. If that
// connects, for example to a process that has already restarted, nobody has waited. The
// lost requests are then sent again at the rate of the slow start instead of from the
// budget.
type lossBurst struct {
	on        bool
	first     time.Duration // when the first request was lost
	last      time.Duration
	minLost   int64 // how many must be lost
	lost      int64 // requests sent before first that were lost
	succeeded int64 // requests sent before first that were answered well since
}

const (
	lossBurstGap   = 250 * time.Millisecond // the burst ends after this long without a loss
	lossBurstMax   = 20                     // lost requests that are enough, as in evidence
	lossBurstMin   = 10                     // minimum, if fewer were in flight: the budget's burst retries fewer
	lossBurstShare = 0.9
)

// recordLoss counts the loss of a request sent at sent; others is the number of other
// requests in flight. It reports whether nearly all requests in flight at the first loss
// are lost.
func (b *lossBurst) recordLoss(sent, now time.Duration, others int64) bool {
	if !b.on || now-b.last > lossBurstGap {
		*b = lossBurst{on: true, first: now, minLost: max(lossBurstMin, min(lossBurstMax, others+1))}
	}
	if sent >= b.first {
		return false
	}
	b.lost++
	b.last = max(b.last, now)
	return b.lost >= b.minLost && float64(b.lost) >= lossBurstShare*float64(b.lost+b.succeeded)
}

// recordResponse counts a good response to a request sent at sent.
func (b *lossBurst) recordResponse(sent time.Duration) {
	if b.on && sent < b.first {
		b.succeeded++
	}
}

// LosingInFlight reports whether the upstream may be losing all its requests in flight, and
// until when that can turn out.
func (g *Guard) LosingInFlight(now time.Duration) (until time.Duration, losing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &g.core.lossBurst
	until = b.last + lossBurstGap
	return until, b.on && now < until && !g.options.NoBreaker && float64(b.lost) >= lossBurstShare*float64(b.lost+b.succeeded)
}
