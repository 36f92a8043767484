package admission

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// enlist adds the queue to the list of those with lease requests to make. It is called with mu
// held.
func (q *RateLimitQueue) enlist() {
	s := q.set
	if s.wanted == nil || q.listed {
		return
	}
	q.listed = true
	s.busyMu.Lock()
	s.busy = append(s.busy, q)
	s.busyMu.Unlock()
}

// Ask appends the lease requests that are due to asks and returns when the next one is due. Queues
// with nothing more to request leave the list.
func (s *RateLimits) Ask(asks []ratelimit.LeaseRequest, now time.Duration) ([]ratelimit.LeaseRequest, time.Duration) {
	s.busyMu.Lock()
	queues := s.busy
	s.busy = nil
	s.busyMu.Unlock()
	next, every := backoff.Forever, s.every(len(queues))
	still := queues[:0]
	for _, q := range queues {
		var at time.Duration
		asks, at = q.ask(asks, now, every)
		if at != backoff.Forever {
			still = append(still, q)
		}
		next = min(next, at)
	}
	s.busyMu.Lock()
	s.busy = append(s.busy, still...)
	s.busyMu.Unlock()
	return asks, next
}

// every returns how long a queue does not request again if that many queues make requests. The
// ledger bounds the requests of its own key; only this process knows how many keys there are.
func (s *RateLimits) every(queues int) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if queues < 2 {
		return 0
	}
	return time.Duration(queues) * time.Duration(max(s.processes, 1)) * (time.Second / ratelimit.LedgerRequestsPerSecond)
}

// ask appends the requests that are due to asks, and returns when the next one is.
func (q *RateLimitQueue) ask(asks []ratelimit.LeaseRequest, now, every time.Duration) (_ []ratelimit.LeaseRequest, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next = backoff.Forever
	if waiting := q.waiters.Len(); q.rateLimit != nil {
		if next = q.rateLimit.RequestDue(now, waiting); next <= now {
			a := q.rateLimit.MakeRequest(now, waiting)
			a.Key, a.Every = q.Key, every
			asks, next = append(asks, a), q.rateLimit.RequestDue(now, waiting)
		}
	}
	if q.tokens != nil && q.tokens.shared != nil {
		var at time.Duration
		asks, at = q.askAccount(asks, now)
		next = min(next, at)
	}
	q.listed = next != backoff.Forever
	if q.waiters.Len() > 0 {
		q.setTimer(now) // an answer that does not come is waited for only briefly
	}
	return asks, next
}

// Share sets how many processes share the rate limit.
func (s *RateLimits) Share(processes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processes == processes {
		return
	}
	s.processes = processes
	s.each(func(q *RateLimitQueue) { q.share(processes) })
}

// share sets how many processes share the limits. Called with mu held.
func (q *RateLimitQueue) share(processes int) {
	if q.rateLimit != nil {
		q.rateLimit.Share(processes)
	}
	if q.tokens != nil && q.tokens.shared != nil {
		q.tokens.shared.processes = processes
	}
}

// update changes the limits and admits the waiters for whom there is enough then.
func (q *RateLimitQueue) update(now time.Duration, do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired {
		return
	}
	do()
	if q.rateLimit != nil && q.rateLimit.RequestDue(now, q.waiters.Len()) != backoff.Forever {
		q.enlist() // slots that nobody takes go back
	}
	q.admit(now)
}
