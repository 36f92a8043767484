package proxy

import (
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Rate limit is how many attempts a route's upstream may be sent in a time. Hedges
// and retries count.
type RateLimit struct {
	Rate   policy.RateLimit // the zero value: no rate limit
	Wait   time.Duration    // the longest that a request waits for its turn; 0: not at all
	Kind   RateLimitKind
	Header string // the field's name, for QuotaHeader
}

// RateLimitKind says which requests have a rate limit together.
type RateLimitKind uint8

// The choices of QuotaKind.
const (
	RateLimitUpstream RateLimitKind = iota // those of all routes with this choice and rate to the same upstream
	RateLimitRoute                         // those of the route
	RateLimitHeader                        // those with the same value in a field, of all routes with this choice and rate to the same upstream; those without it together
)

// rateLimitQueue is where attempts wait for a slot of a rate limit.
type rateLimitQueue struct {
	key uint64 // the same in every process
	set *rateLimitSet

	mu        sync.Mutex // guards what follows
	rateLimit *policy.RateLimiter
	line      *policy.Queue[*waiter]
	timer     *time.Timer
	retired   bool // forgotten: who comes with its key has another
	listed    bool // among set.busy
}

// newRateLimitQueue makes a queue for the requests of a key.
func newRateLimitQueue(s *rateLimitSet, key uint64) *rateLimitQueue {
	q := &rateLimitQueue{key: key, set: s, rateLimit: policy.NewRateLimiter(s.rate, s.wanted != nil, nil), line: policy.NewQueue[*waiter](s.holdMax)}
	q.timer = time.AfterFunc(time.Hour, q.tick)
	q.timer.Stop()
	return q
}

// enter takes a slot, or waits in the queue for one where the wait is likely to be
// shorter than room, or says after about how long a slot is free. No when the
// queue is retired.
func (q *rateLimitQueue) enter(w *waiter, now, room time.Duration) (e entry, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired {
		return e, false
	}
	q.enlist()
	q.rateLimit.Arrive()
	ahead := q.line.Len()
	if ahead == 0 && q.rateLimit.Take(now) {
		return entry{word: decisionAdmit}, true
	}
	wait := q.rateLimit.Pace() * time.Duration(ahead+1)
	if ahead == 0 {
		if next := q.rateLimit.Next(now); next != policy.Forever {
			wait = next - now
		}
	}
	if wait > room || q.line.Full() {
		return entry{word: decisionDropped, wait: wait}, true
	}
	w.decision.Store(decisionWait)
	t, _, _ := q.line.Push(w)
	q.arm(now)
	return entry{decisionWait, t, wait}, true
}

// entry is what becomes of an attempt at the queue.
type entry struct {
	word   int32
	ticket policy.Ticket // with decisionWait
	wait   time.Duration // about how long it takes
}

// takeNow takes a slot for an attempt that does not wait for one.
func (q *rateLimitQueue) takeNow(now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired || q.line.Len() > 0 {
		return false
	}
	q.enlist()
	return q.rateLimit.Take(now)
}

// giveBack returns a slot that was not used.
func (q *rateLimitQueue) giveBack(now time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired {
		return // long over
	}
	q.enlist()
	q.rateLimit.GiveBack(now)
	q.arm(now)
}

// quit takes a waiter out of the line that does not want to wait any longer;
// no when it was let in meanwhile.
func (q *rateLimitQueue) quit(t policy.Ticket, now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.arm(now)
	return q.line.Remove(t)
}

// tick is the timer's.
func (q *rateLimitQueue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.admit(q.set.elapsed())
}

// admit lets in whom there are slots for, whoever came first first. Called with mu held.
func (q *rateLimitQueue) admit(now time.Duration) {
	for q.line.Len() > 0 && q.rateLimit.Take(now) {
		w, _ := q.line.Oldest()
		w.notify(decisionAdmit)
	}
	q.arm(now)
}

// arm sets the timer to the next slot, and has one asked for. Called with mu held, after every
// change of the line and of what is known of slots.
func (q *rateLimitQueue) arm(now time.Duration) {
	if q.line.Len() == 0 {
		q.timer.Stop()
		return
	}
	if q.set.wanted != nil {
		q.set.wanted()
	}
	if at := q.rateLimit.Next(now); at != policy.Forever {
		q.timer.Reset(max(at-now, 0))
	}
}

// leaseTakes is how long a request waits at least where slots are leased: a
// process that sends rarely has none at hand.
const leaseTakes = 150 * time.Millisecond

// awaitRateLimit waits for the request's turn in the rate limit of its upstream, and gives
// the time that it then is.
func (x *exchange) awaitRateLimit(s *rateLimitSet, now instant) (admission, instant) {
	room := x.route.RateLimit.Wait
	if s.wanted != nil {
		room = max(room, leaseTakes)
	}
	room = min(room, x.maxWait(now))
	q, e := s.enter(x.rateLimitKey(s), &x.waiter, x.c.server.since(now), room)
	switch e.word {
	case decisionAdmit:
		x.rateLimitSlot = q
		return admitted, now
	case decisionDropped:
		return x.overRateLimit(e.wait), now
	}
	x.waiter.expectedAt = x.c.server.since(now) + e.wait
	end := x.c.await(now.Add(room), &x.waiter)
	later := x.tick()
	x.observer.Queued(later.Sub(now))
	if q.quit(e.ticket, x.c.server.since(later)) {
		switch end {
		case clientLeft:
			return clientLeftQueue, later
		case drainBegan:
			x.retryAfter = wholeSeconds(max(x.waiter.expectedAt-x.c.server.since(later), time.Second))
			return drainEndedWait, later
		}
		return x.overRateLimit(e.wait), later
	}
	x.rateLimitSlot = q
	if end == clientLeft { // it was let in at the same moment
		return clientLeftQueue, later
	}
	return admitted, later
}

// overRateLimit turns the request away.
func (x *exchange) overRateLimit(wait time.Duration) admission {
	x.rejectedBy, x.retryAfter = rejectedByRateLimit, min(max(wholeSeconds(wait), 1), 3600)
	return notAdmitted
}

// returnRateLimitSlot returns the slot of an attempt that is not sent after all.
func (x *exchange) returnRateLimitSlot() {
	if q := x.rateLimitSlot; q != nil {
		x.rateLimitSlot = nil
		q.giveBack(q.set.elapsed())
	}
}
