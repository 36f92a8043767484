package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// enlist has the questions of the queue collected until there are none. Called with
// mu held. Who waits for a slot has them collected soon, see arm.
func (q *rateLimitQueue) enlist() {
	s := q.set
	if s.wanted == nil || q.listed {
		return
	}
	q.listed = true
	s.busyMu.Lock()
	s.busy = append(s.busy, q)
	s.busyMu.Unlock()
}

// RateLimitLeaseRequests appends the questions for slots that are due now to asks, and says when the
// next one is; policy.Forever: when Config.RateLimitWanted says so, or in a while. Safe for
// concurrent use, as all that follows.
func (s *Server) RateLimitLeaseRequests(asks []policy.RateLimitLeaseRequest) ([]policy.RateLimitLeaseRequest, time.Duration) {
	now, next := s.elapsed(), policy.Forever
	for _, set := range s.settings.Load().rateLimits {
		var at time.Duration
		asks, at = set.ask(asks, now)
		next = min(next, at)
	}
	if next != policy.Forever {
		next -= now
	}
	return asks, next
}

// ask goes through the doors that are listed, and leaves out those with nothing more
// to ask.
func (s *rateLimitSet) ask(asks []policy.RateLimitLeaseRequest, now time.Duration) ([]policy.RateLimitLeaseRequest, time.Duration) {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.busyMu.Lock()
	doors := s.busy
	s.busy, s.spare = s.spare[:0], doors
	s.busyMu.Unlock()
	next, still, every := policy.Forever, doors[:0], s.every(len(doors))
	for _, q := range doors {
		a, at, due := q.ask(now)
		if due {
			a.Every = every
			asks = append(asks, a)
		}
		if at != policy.Forever {
			still = append(still, q)
		}
		next = min(next, at)
	}
	s.busyMu.Lock()
	s.busy = append(s.busy, still...)
	s.busyMu.Unlock()
	clear(doors) // holds on to nothing that was forgotten
	return asks, next
}

// every is how long each queue does not ask again, of so many that have something to ask. A ledger
// bounds the questions about its own key; that there are many keys is known here.
func (s *rateLimitSet) every(doors int) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if doors < 2 {
		return 0
	}
	return time.Duration(doors) * time.Duration(s.processes) * (time.Second / policy.LedgerRequestsPerSecond)
}

func (q *rateLimitQueue) ask(now time.Duration) (a policy.RateLimitLeaseRequest, next time.Duration, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.line.Len()
	next = q.rateLimit.RequestDue(now, waiting)
	if next <= now {
		a, due = q.rateLimit.MakeRequest(now, waiting), true
		a.Key = q.key
		next = q.rateLimit.RequestDue(now, waiting)
	}
	q.listed = next != policy.Forever
	return a, next, due
}

// ApplyRateLimitLease takes in the answer to a question of RateLimitLeaseRequests.
func (s *Server) ApplyRateLimitLease(key uint64, g policy.RateLimitLeaseGrant) {
	s.withRateLimit(key, func(q *policy.RateLimiter, now time.Duration) { q.ApplyGrant(now, g) })
}

// FailRateLimitLease says that a question of RateLimitLeaseRequests had no response.
func (s *Server) FailRateLimitLease(key uint64) {
	s.withRateLimit(key, func(q *policy.RateLimiter, _ time.Duration) { q.RequestFailed() })
}

// ShareRateLimits says how many processes share each rate limit.
func (s *Server) ShareRateLimits(processes int) {
	for _, set := range s.settings.Load().rateLimits {
		set.share(processes)
	}
}

func (s *rateLimitSet) share(processes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processes == processes {
		return
	}
	s.processes = processes
	s.each(func(q *rateLimitQueue) { q.rateLimit.Share(processes) })
}

func (s *Server) withRateLimit(key uint64, do func(q *policy.RateLimiter, now time.Duration)) {
	q := s.settings.Load().rateLimitQueue(key)
	if q == nil {
		return // gone by a reload, or forgotten
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired {
		return
	}
	now := s.elapsed()
	do(q.rateLimit, now)
	if q.rateLimit.RequestDue(now, q.line.Len()) != policy.Forever {
		q.enlist() // slots that nobody takes are given back
	}
	q.admit(now)
}

// rateLimitQueue is the queue of a key; nil for none.
func (n *settings) rateLimitQueue(key uint64) *rateLimitQueue {
	for _, s := range n.rateLimits {
		if q := s.known(key); q != nil {
			return q
		}
	}
	return nil
}
