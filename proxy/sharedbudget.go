package proxy

import (
	"github.com/retryproxy/retryproxy/policy/budget"
)

// BudgetReports appends the reports of retry budgets that are due now to asks. Safe for concurrent
// use, like the methods below.
func (s *Server) BudgetReports(asks []budget.Report) []budget.Report {
	n, now := s.settings.Load(), s.Clock.Elapsed()
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
	now := s.Clock.Elapsed()
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
