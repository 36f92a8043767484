package admission

import (
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/queue"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// RateLimit is how many attempts the upstream of a route gets in a time, including hedges and
// retries.
type RateLimit struct {
	Rate   ratelimit.Rate // the zero value: no rate limit
	Wait   time.Duration  // the longest wait of a request; 0: no wait
	Kind   RateLimitKind
	Header string // name of the header, for RateLimitHeader
}

// RateLimitKind is which requests share a rate limit.
type RateLimitKind uint8

// The choices of RateLimitKind.
const (
	RateLimitUpstream RateLimitKind = iota // all requests of routes with this choice and rate to the same upstream
	RateLimitRoute                         // the requests of the route
	RateLimitHeader                        // requests with the same value of a header, of all routes with this choice and rate to the same upstream; those without the header share one
)

// RateLimitQueue is the queue of the attempts of one key for a slot of their rate limit. It is
// safe for concurrent use.
type RateLimitQueue struct {
	Key uint64 // the same in every process
	set *RateLimits

	mu        sync.Mutex // guards all fields below
	rateLimit *ratelimit.Limiter
	waiters   *queue.Queue[*Waiter]
	timer     *time.Timer
	retired   bool // forgotten: its key has another queue
	listed    bool // it is in set.busy
}

// newRateLimitQueue returns the queue for the requests of a key.
func newRateLimitQueue(s *RateLimits, key uint64) *RateLimitQueue {
	q := &RateLimitQueue{Key: key, set: s, rateLimit: ratelimit.New(s.rate, s.wanted != nil, nil), waiters: queue.New[*Waiter](s.queueMax)}
	q.timer = time.AfterFunc(time.Hour, q.tick)
	q.timer.Stop()
	return q
}

// enter takes a slot. If none is free, it queues w if the wait is likely to be shorter than room;
// otherwise it returns the estimated wait. ok is false if the queue is retired.
func (q *RateLimitQueue) enter(w *Waiter, now, room time.Duration) (e entry, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired {
		return e, false
	}
	q.enlist()
	q.rateLimit.Arrive()
	ahead := q.waiters.Len()
	if ahead == 0 && q.rateLimit.Take(now) {
		return entry{Decision: Admit}, true
	}
	wait := q.rateLimit.Pace() * time.Duration(ahead+1)
	if ahead == 0 {
		if next := q.rateLimit.Next(now); next != backoff.Forever {
			wait = next - now
		}
	}
	if wait > room || q.waiters.Full() {
		return entry{Decision: Dropped, Wait: wait}, true
	}
	w.Decision.Store(Wait)
	w.queuedAt = now
	t, _, _ := q.waiters.Push(w)
	q.arm(now)
	return entry{Wait, t, wait}, true
}

// entry is the result of entering a queue.
type entry struct {
	Decision int32
	Ticket   queue.Ticket  // if the decision is Wait
	Wait     time.Duration // an estimate
}

// TakeNow takes a slot for an attempt that does not wait. It reports whether one was free.
func (q *RateLimitQueue) TakeNow(now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired || q.waiters.Len() > 0 {
		return false
	}
	q.enlist()
	return q.rateLimit.Take(now)
}

// GiveBack returns a slot that was not used.
func (q *RateLimitQueue) GiveBack(now time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired {
		return // the slot is long past
	}
	q.enlist()
	q.rateLimit.GiveBack(now)
	q.arm(now)
}

// Quit removes a waiter. It reports false if the waiter was already admitted.
func (q *RateLimitQueue) Quit(t queue.Ticket, now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.arm(now)
	return q.waiters.Remove(t)
}

// tick is called by the timer.
func (q *RateLimitQueue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.admit(q.set.elapsed())
}

// admit grants the free slots to waiters in order of arrival. It is called with mu held.
func (q *RateLimitQueue) admit(now time.Duration) {
	for q.waiters.Len() > 0 && q.rateLimit.Take(now) {
		w, _ := q.waiters.Oldest()
		w.Notify(Admit)
	}
	q.arm(now)
}

// arm sets the timer to the next slot and requests a lease. It is called with mu held, after every
// change of the queue and of the slots.
func (q *RateLimitQueue) arm(now time.Duration) {
	if q.waiters.Len() == 0 {
		q.timer.Stop()
		return
	}
	if q.set.wanted != nil {
		q.set.wanted()
	}
	if at := q.rateLimit.Next(now); at != backoff.Forever {
		q.timer.Reset(max(at-now, 0))
	}
}
