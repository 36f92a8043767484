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

// BudgetAsks appends what there is to tell of retry budgets now to asks. Safe
// for concurrent use, as all that follows.
func (s *Server) BudgetAsks(asks []policy.BudgetAsk) []policy.BudgetAsk {
	n, now := s.settings.Load(), s.elapsed()
	for u := range n.budgeted {
		if a, due := u.budget.Ask(now); due {
			a.Key = u.budgetKey
			asks = append(asks, a)
		}
	}
	return asks
}

// GrantBudget takes in the answer to a question of BudgetAsks: how many retries the
// bucket of all holds, and how many processes there are.
func (s *Server) GrantBudget(key uint64, level float64, processes int) {
	now := s.elapsed()
	s.withBudget(key, func(b *policy.Budget) { b.Grant(now, level, processes) })
}

// FailBudget says that a question of BudgetAsks had no answer.
func (s *Server) FailBudget(key uint64) { s.withBudget(key, (*policy.Budget).Fail) }

func (s *Server) withBudget(key uint64, do func(*policy.Budget)) {
	for u := range s.settings.Load().budgeted {
		if u.budgetKey == key {
			do(u.budget)
		}
	}
}
