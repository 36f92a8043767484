package policy

import "time"

// burst watches for an upstream that ends with everything it has in hand, as a
// killed process does: what was sent before the first connection is lost is lost
// as well, nearly all of it.
//
// It is judged before the share of failures within a second or five, which an
// upstream that worked well until then still has in its favour. The gate that it
// closes asks for a connection at once. If that is accepted, as by a process that
// is already back, nobody has waited, and what was lost is sent again at the pace
// of the slow start instead of from the budget.
type burst struct {
	on    bool
	first time.Duration // when the first of them was lost
	last  time.Duration
	least int64 // how many have to be
	lost  int64 // of what was sent before first
	well  int64 // of the same, those answered well since
}

const (
	burstGap   = 250 * time.Millisecond // without a loss, and it is over
	burstMost  = 20                     // lost requests that tell, as in evidence
	burstLeast = 10                     // ... where no more were in flight: fewer, the budget's burst repeats
	burstShare = 0.9
)

// lose counts a request lost that was sent at sent, with others in flight besides
// it. It reports whether nearly all of what was in flight at the first loss is lost.
func (b *burst) lose(sent, now time.Duration, others int64) bool {
	if !b.on || now-b.last > burstGap {
		*b = burst{on: true, first: now, least: max(burstLeast, min(burstMost, others+1))}
	}
	if sent >= b.first {
		return false
	}
	b.lost++
	b.last = max(b.last, now)
	return b.lost >= b.least && float64(b.lost) >= burstShare*float64(b.lost+b.well)
}

// answered counts a good answer to a request that was sent at sent.
func (b *burst) answered(sent time.Duration) {
	if b.on && sent < b.first {
		b.well++
	}
}

// Losing reports until when it may turn out that the upstream has lost all that
// it had in hand; false while nothing looks like it.
func (g *Guard) Losing(now time.Duration) (until time.Duration, losing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &g.burst
	until = b.last + burstGap
	return until, b.on && now < until && !g.options.NoGate && float64(b.lost) >= burstShare*float64(b.lost+b.well)
}
