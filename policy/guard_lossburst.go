package policy

import "time"

// lossBurst watches for an upstream that ends with everything it has in hand, as a
// killed process does: what was sent before the first connection is lost is lost
// as well, nearly all of it.
//
// It is judged before the share of failures within a second or five, which an
// upstream that worked well until then still has in its favour. The breaker that it
// opens asks for a connection at once. If that is accepted, as by a process that
// is already back, nobody has waited, and what was lost is sent again at the pace
// of the slow start instead of from the budget.
type lossBurst struct {
	on        bool
	first     time.Duration // when the first of them was lost
	last      time.Duration
	minLost   int64 // how many have to be
	lost      int64 // of what was sent before first
	succeeded int64 // of the same, those answered well since
}

const (
	lossBurstGap   = 250 * time.Millisecond // without a loss, and it is over
	lossBurstMax   = 20                     // lost requests that tell, as in evidence
	lossBurstMin   = 10                     // ... where no more were in flight: fewer, the budget's burst retries
	lossBurstShare = 0.9
)

// recordLoss counts a request lost that was sent at sent, with others in flight besides
// it. It reports whether nearly all of what was in flight at the first loss is lost.
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

// recordResponse counts a good response to a request that was sent at sent.
func (b *lossBurst) recordResponse(sent time.Duration) {
	if b.on && sent < b.first {
		b.succeeded++
	}
}

// LosingInFlight reports until when it may turn out that the upstream has lost all that
// it had in hand; false while nothing looks like it.
func (g *Guard) LosingInFlight(now time.Duration) (until time.Duration, losing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &g.lossBurst
	until = b.last + lossBurstGap
	return until, b.on && now < until && !g.options.NoBreaker && float64(b.lost) >= lossBurstShare*float64(b.lost+b.succeeded)
}
