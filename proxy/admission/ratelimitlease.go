package admission

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// enlist puts the queue on the list of those with lease requests to make. Called with mu held.
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

// Ask appends the lease requests that are due to asks and returns when the next one is due.
// Queues without more to ask leave the list.
func (s *RateLimits) Ask(asks []ratelimit.LeaseRequest, now time.Duration) ([]ratelimit.LeaseRequest, time.Duration) {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.busyMu.Lock()
	queues := s.busy
	s.busy, s.spare = s.spare[:0], queues
	s.busyMu.Unlock()
	next, still, every := backoff.Forever, queues[:0], s.every(len(queues))
	for _, q := range queues {
		a, at, due := q.ask(now)
		if due {
			a.Every = every
			asks = append(asks, a)
		}
		if at != backoff.Forever {
			still = append(still, q)
		}
		next = min(next, at)
	}
	s.busyMu.Lock()
	s.busy = append(s.busy, still...)
	s.busyMu.Unlock()
	clear(queues) // keeps no forgotten queue alive
	return asks, next
}

// every returns how long a queue does not ask again if so many queues ask. The ledger bounds the
// requests for its own key; only this process knows how many keys there are.
func (s *RateLimits) every(queues int) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if queues < 2 {
		return 0
	}
	return time.Duration(queues) * time.Duration(s.processes) * (time.Second / ratelimit.LedgerRequestsPerSecond)
}

func (q *RateLimitQueue) ask(now time.Duration) (a ratelimit.LeaseRequest, next time.Duration, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rateLimit == nil {
		q.listed = false
		return a, backoff.Forever, false
	}
	waiting := q.waiters.Len()
	next = q.rateLimit.RequestDue(now, waiting)
	if next <= now {
		a, due = q.rateLimit.MakeRequest(now, waiting), true
		a.Key = q.Key
		next = q.rateLimit.RequestDue(now, waiting)
	}
	q.listed = next != backoff.Forever
	return a, next, due
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
}

// Update changes the limiter and admits the waiters for whom there are slots then.
func (q *RateLimitQueue) Update(now time.Duration, do func(q *ratelimit.Limiter, now time.Duration)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired || q.rateLimit == nil {
		return
	}
	do(q.rateLimit, now)
	if q.rateLimit.RequestDue(now, q.waiters.Len()) != backoff.Forever {
		q.enlist() // slots that nobody takes go back
	}
	q.admit(now)
}
