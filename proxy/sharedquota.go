package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// enlist has the questions of the door collected until there are none. Called with
// mu held. Who waits for a slot has them collected soon, see arm.
func (q *quotaDoor) enlist() {
	s := q.set
	if s.wanted == nil || q.listed {
		return
	}
	q.listed = true
	s.busyMu.Lock()
	s.busy = append(s.busy, q)
	s.busyMu.Unlock()
}

// QuotaAsks appends the questions for slots that are due now to asks, and says when the
// next one is; policy.Forever: when Config.QuotaWanted says so, or in a while. Safe for
// concurrent use, as all that follows.
func (s *Server) QuotaAsks(asks []policy.QuotaAsk) ([]policy.QuotaAsk, time.Duration) {
	now, next := s.elapsed(), policy.Forever
	for _, set := range s.settings.Load().quotas {
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
func (s *quotaSet) ask(asks []policy.QuotaAsk, now time.Duration) ([]policy.QuotaAsk, time.Duration) {
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

// every is how long each door does not ask again, of so many that have something to ask. A ledger
// bounds the questions about its own key; that there are many keys is known here.
func (s *quotaSet) every(doors int) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if doors < 2 {
		return 0
	}
	return time.Duration(doors) * time.Duration(s.processes) * (time.Second / policy.QuotaQuestions)
}

func (q *quotaDoor) ask(now time.Duration) (a policy.QuotaAsk, next time.Duration, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.line.Len()
	next = q.quota.Due(now, waiting)
	if next <= now {
		a, due = q.quota.Ask(now, waiting), true
		a.Key = q.key
		next = q.quota.Due(now, waiting)
	}
	q.listed = next != policy.Forever
	return a, next, due
}

// GrantQuota takes in the answer to a question of QuotaAsks.
func (s *Server) GrantQuota(key uint64, g policy.QuotaGrant) {
	s.withQuota(key, func(q *policy.Quota, now time.Duration) { q.Grant(now, g) })
}

// FailQuota says that a question of QuotaAsks had no answer.
func (s *Server) FailQuota(key uint64) {
	s.withQuota(key, func(q *policy.Quota, _ time.Duration) { q.Fail() })
}

// ShareQuotas says how many processes share each quota.
func (s *Server) ShareQuotas(processes int) {
	for _, set := range s.settings.Load().quotas {
		set.share(processes)
	}
}

func (s *quotaSet) share(processes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processes == processes {
		return
	}
	s.processes = processes
	s.each(func(q *quotaDoor) { q.quota.Share(processes) })
}

func (s *Server) withQuota(key uint64, do func(q *policy.Quota, now time.Duration)) {
	q := s.settings.Load().quotaDoor(key)
	if q == nil {
		return // gone by a reload, or forgotten
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired {
		return
	}
	now := s.elapsed()
	do(q.quota, now)
	if q.quota.Due(now, q.line.Len()) != policy.Forever {
		q.enlist() // slots that nobody takes are given back
	}
	q.admit(now)
}

// quotaDoor is the door of a key; nil for none.
func (n *settings) quotaDoor(key uint64) *quotaDoor {
	for _, s := range n.quotas {
		if q := s.known(key); q != nil {
			return q
		}
	}
	return nil
}
