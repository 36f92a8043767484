package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/retryproxy/retryproxy/policy"
)

// budgetKey is the same in every process with a route of the same budget to the
// same upstream.
func budgetKey(r *Route) uint64 {
	h := sha256.Sum256(fmt.Appendf(nil, "budget\x00%s\x00%+v", r.Upstream.String(), r.Budget))
	return binary.BigEndian.Uint64(h[:])
}

// newBudget makes the budget of a route's upstream.
func (n *settings) newBudget(r *Route) *policy.Budget {
	b := policy.NewBudget(r.Budget)
	if n.BudgetWanted != nil {
		b.Share(n.BudgetWanted)
	}
	return b
}

// BudgetReports appends what there is to tell of retry budgets now to asks. Safe
// for concurrent use, as all that follows.
func (s *Server) BudgetReports(asks []policy.BudgetReport) []policy.BudgetReport {
	n, now := s.settings.Load(), s.elapsed()
	for u := range n.budgeted {
		if a, due := u.budget.MakeReport(now); due {
			a.Key = u.budgetKey
			asks = append(asks, a)
		}
	}
	return asks
}

// ApplyBudgetGrant takes in the answer to a question of BudgetReports: how many retries the
// bucket of all holds, and how many processes there are.
func (s *Server) ApplyBudgetGrant(key uint64, level float64, processes int) {
	now := s.elapsed()
	s.withBudget(key, func(b *policy.Budget) { b.ApplyGrant(now, level, processes) })
}

// FailBudgetReport says that a question of BudgetReports had no response.
func (s *Server) FailBudgetReport(key uint64) { s.withBudget(key, (*policy.Budget).ReportFailed) }

func (s *Server) withBudget(key uint64, do func(*policy.Budget)) {
	for u := range s.settings.Load().budgeted {
		if u.budgetKey == key {
			do(u.budget)
		}
	}
}
