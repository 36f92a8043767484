package admission

import (
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/queue"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// RateLimit is how many attempts and tokens the upstream of a route gets in a time, hedges and
// retries included.
type RateLimit struct {
	Rate   ratelimit.Rate // the zero value: no rate limit
	Learn  bool           // instead of Rate: the limits that responses tell
	Probe  time.Duration  // with Learn: after how long without an attempt one is sent all the same; 0: never
	Tokens ratelimit.Rate // the zero value: no limit of tokens
	Wait   time.Duration  // the longest wait of a request; 0: none
	// SharedBy is which requests of all routes with the same choice and rate to the same upstream share
	// the limit: all of them if it is the zero value. Those with none of its values share one.
	SharedBy Sharing
}

// Limited reports whether there is any limit.
func (l *RateLimit) Limited() bool { return l.Rate.Limited() || l.CountsTokens() }

// CountsTokens reports whether the limit depends on what is in the body of a request.
func (l *RateLimit) CountsTokens() bool { return l.Learn || l.Tokens.Limited() }

// String returns the limits as in settings.
func (l *RateLimit) String() string {
	text := l.Rate.String()
	if l.Learn {
		text = "auto"
	}
	if l.Tokens.Limited() {
		text += " and " + l.Tokens.String() + " tokens"
	}
	return text
}

// RateLimitQueue is the queue of the attempts of one key for a slot of their rate limit. It is
// safe for concurrent use.
type RateLimitQueue struct {
	Key uint64 // the same in every process
	set *RateLimits

	mu        sync.Mutex         // guards all below
	rateLimit *ratelimit.Limiter // nil: none
	tokens    *tokenAccount      // nil: none
	waiters   *queue.Queue[*Waiter]
	timer     *time.Timer
	retired   bool // forgotten: its key has another queue
	listed    bool // it is in set.busy
}

// newRateLimitQueue returns the queue for the requests of a key.
func newRateLimitQueue(s *RateLimits, key uint64) *RateLimitQueue {
	q := &RateLimitQueue{Key: key, set: s, waiters: queue.New[*Waiter](s.queueMax)}
	if s.limit.Rate.Limited() {
		q.rateLimit = ratelimit.New(s.limit.Rate, s.wanted != nil, nil)
	}
	if s.limit.CountsTokens() {
		q.tokens = newTokenAccount(&s.limit, s.elapsed(), s.wanted != nil)
	}
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
	if q.rateLimit != nil {
		q.rateLimit.Arrive()
	}
	if q.waiters.Len() == 0 && q.take(now, w.Use) {
		return entry{Decision: Admit}, true
	}
	wait := q.estimate(now, w.Use)
	if wait > room || q.waiters.Full() {
		return entry{Decision: Dropped, Wait: wait}, true
	}
	w.Decision.Store(Wait)
	w.queuedAt = now
	t, _, _ := q.waiters.Push(w)
	if q.tokens != nil {
		q.tokens.enqueue(w.Use)
	}
	q.arm(now)
	return entry{Wait, t, wait}, true
}

// take takes what an attempt needs of all limits, or nothing. It reports whether there is enough.
func (q *RateLimitQueue) take(now time.Duration, u *Use) bool {
	if q.tokens != nil && !q.tokens.ready(now, u) {
		return false
	}
	if q.rateLimit != nil && !q.rateLimit.Take(now) {
		return false
	}
	if q.tokens != nil {
		q.tokens.take(now, u)
		u.queue = q
	}
	return true
}

// estimate returns how long an attempt is likely to wait behind the others.
func (q *RateLimitQueue) estimate(now time.Duration, u *Use) (wait time.Duration) {
	ahead := q.waiters.Len()
	if q.rateLimit != nil {
		wait = q.rateLimit.Pace() * time.Duration(ahead+1)
		if ahead == 0 {
			if next := q.rateLimit.Next(now); next != backoff.Forever {
				wait = next - now
			}
		}
	}
	if q.tokens != nil {
		wait = max(wait, q.tokens.wait(now, u, ahead+1))
	}
	return wait
}

// next returns when the first in the queue may be admitted.
func (q *RateLimitQueue) next(now time.Duration) time.Duration {
	at := now
	if q.rateLimit != nil {
		at = q.rateLimit.Next(now)
	}
	if q.tokens != nil && at != backoff.Forever {
		if w, ok := q.waiters.First(); ok {
			at = max(at, q.tokens.next(now, w.Use))
		}
	}
	return at
}

// entry is the result of entering a queue.
type entry struct {
	Decision int32
	Ticket   queue.Ticket  // if the decision is Wait
	Wait     time.Duration // an estimate
}

// TakeNow takes a slot for an attempt that does not wait. It reports whether one was free.
func (q *RateLimitQueue) TakeNow(now time.Duration, u *Use) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired || q.waiters.Len() > 0 {
		return false
	}
	q.enlist()
	return q.take(now, u)
}

// GiveBack returns a slot that was not used.
func (q *RateLimitQueue) GiveBack(now time.Duration, u *Use) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u != nil {
		u.queue = nil
	}
	if q.retired {
		return // the slot is long past
	}
	q.enlist()
	if q.rateLimit != nil {
		q.rateLimit.GiveBack(now)
	}
	if q.tokens != nil {
		q.tokens.giveBack(now, u)
	}
	q.arm(now)
}

// Quit removes a waiter that no longer waits. It reports false if the waiter was admitted
// meanwhile.
func (q *RateLimitQueue) Quit(w *Waiter, t queue.Ticket, now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.arm(now)
	if !q.waiters.Remove(t) {
		return false
	}
	if q.tokens != nil {
		q.tokens.dequeue(w.Use)
	}
	return true
}

// tick is called by the timer.
func (q *RateLimitQueue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.admit(q.set.elapsed())
}

// admit grants the free slots to waiters in order of arrival. It is called with mu held.
func (q *RateLimitQueue) admit(now time.Duration) {
	for {
		w, ok := q.waiters.First()
		if !ok || !q.take(now, w.Use) {
			break
		}
		q.admitOldest()
	}
	q.arm(now)
}

// admitOldest admits the first in the queue, which has what it needs.
func (q *RateLimitQueue) admitOldest() {
	w, _ := q.waiters.Oldest()
	if q.tokens != nil {
		q.tokens.dequeue(w.Use)
	}
	w.Notify(Admit)
}

// arm sets the timer to the next slot, and has a lease requested. Called with mu held, after
// every change of the queue and of the slots.
func (q *RateLimitQueue) arm(now time.Duration) {
	if q.waiters.Len() == 0 {
		q.timer.Stop()
		return
	}
	if q.set.wanted != nil {
		q.set.wanted()
	}
	q.setTimer(now)
}

// setTimer sets the timer to the next slot, if it is known when that is. Called with mu held.
func (q *RateLimitQueue) setTimer(now time.Duration) {
	if at := q.next(now); at != backoff.Forever {
		q.timer.Reset(max(at-now, 0))
	}
}
