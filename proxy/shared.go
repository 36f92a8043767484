package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// BudgetReports appends the reports of retry budgets that are due now to asks. All methods of this
// file are safe for concurrent use.
func (s *Server) BudgetReports(asks []budget.Report) []budget.Report {
	n, now := s.settings.Load(), s.process.Clock.Elapsed()
	for u := range n.Budgeted {
		if a, due := u.RetryBudget.MakeReport(now); due {
			a.Key = u.BudgetKey
			asks = append(asks, a)
		}
	}
	return asks
}

// ApplyBudgetGrant applies the response to a report: how many retries the shared bucket holds, and
// how many processes there are.
func (s *Server) ApplyBudgetGrant(key uint64, level float64, processes int) {
	now := s.process.Clock.Elapsed()
	s.withBudget(key, func(b *budget.Budget) { b.ApplyGrant(now, level, processes) })
}

// FailBudgetReport records that a report got no response.
func (s *Server) FailBudgetReport(key uint64) { s.withBudget(key, (*budget.Budget).ReportFailed) }

func (s *Server) withBudget(key uint64, do func(*budget.Budget)) {
	for u := range s.settings.Load().Budgeted {
		if u.BudgetKey == key {
			do(u.RetryBudget)
		}
	}
}

// RateLimitLeaseRequests appends the lease requests that are due now to asks. It returns when the
// next one is due; backoff.Forever means that Config.RateLimitWanted is called first. It is safe
// for concurrent use.
func (s *Server) RateLimitLeaseRequests(asks []ratelimit.LeaseRequest) ([]ratelimit.LeaseRequest, time.Duration) {
	now, next := s.process.Clock.Elapsed(), backoff.Forever
	for _, set := range s.settings.Load().AllRateLimits {
		var at time.Duration
		asks, at = set.Ask(asks, now)
		next = min(next, at)
	}
	if next != backoff.Forever {
		next -= now
	}
	return asks, next
}

// ApplyRateLimitLease applies the response to a lease request.
func (s *Server) ApplyRateLimitLease(key uint64, g ratelimit.LeaseGrant) {
	if q := s.settings.Load().RateLimitQueue(key); q != nil { // else it is gone by a reload, or forgotten
		q.ApplyGrant(s.process.Clock.Elapsed(), g)
	}
}

// FailRateLimitLease records that a lease request got no response.
func (s *Server) FailRateLimitLease(key uint64) {
	if q := s.settings.Load().RateLimitQueue(key); q != nil {
		q.FailRequest(s.process.Clock.Elapsed())
	}
}

// ShareRateLimits sets how many processes share each rate limit.
func (s *Server) ShareRateLimits(processes int) {
	for _, set := range s.settings.Load().AllRateLimits {
		set.Share(processes)
	}
}

// ApplyRateLimitPause takes over a pause that began in another process with the same routes. key is
// what that process passed to Config.RateLimitPauseBegan; lasts is what is left of the pause. A
// pause longer than any route's RateLimitPause.Max is ignored. RateLimitPauseBegan is not called
// for it here. It does not block. Safe for concurrent use.
func (s *Server) ApplyRateLimitPause(key uint64, lasts time.Duration) {
	if lasts <= 0 || lasts > s.settings.Load().LongestRateLimitPause {
		return
	}
	now := s.process.Clock.Elapsed()
	s.process.RateLimitPauses.Begin(key, now+lasts, now)
}
