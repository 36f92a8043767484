package budget

import (
	"math"
	"time"
)

// A retry that finds no token may queue for the next one. The queue is the caller's. A Budget knows
// only its length, so that no later retry takes a token of those that wait.

// Join counts a retry that begins to wait for a token.
func (b *Budget) Join() { b.queued.Add(1) }

// Leave counts a retry that got its token or stopped waiting. Call it once per Join.
func (b *Budget) Leave() { b.queued.Add(-1) }

// TryQueued takes a token for the first retry in the queue, or reports that there is none yet.
func (b *Budget) TryQueued(now time.Duration) bool { return b.take(now) }

// Delay returns how long a retry that joins the queue now is likely to wait for its token.
func (b *Budget) Delay(now time.Duration) time.Duration { return b.untilToken(now, b.queued.Load()+1) }

// LastDelay is Delay for the last retry in the queue.
func (b *Budget) LastDelay(now time.Duration) time.Duration {
	return b.untilToken(now, b.queued.Load())
}

// FirstDelay is Delay for the first retry in the queue.
func (b *Budget) FirstDelay(now time.Duration) time.Duration { return b.untilToken(now, 1) }

// untilToken returns how long it takes until n tokens are there, if requests come as in the last ten
// seconds; Forever if nothing adds tokens. In a fleet it knows only the requests of this process.
func (b *Budget) untilToken(now time.Duration, n int64) time.Duration {
	_, recent := b.requests(now)
	missing := float64(n) - b.Tokens(now)
	if missing <= 0 {
		return 0
	}
	perSecond := float64(b.perSecond+recent*b.ratio/windowSeconds) / perToken
	if perSecond <= 0 {
		return math.MaxInt64
	}
	return time.Duration(min(missing/perSecond, maxDelay.Seconds()) * float64(time.Second))
}

// maxDelay bounds a Delay, and exceeds every deadline.
const maxDelay = 365 * 24 * time.Hour
