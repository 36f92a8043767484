package policy

import "time"

// BudgetConfig sets up a Budget. The zero value allows no retry at all; see
// DefaultBudget.
type BudgetConfig struct {
	Ratio        float64 // retries earned by one request; 0 to 10
	MinPerSecond float64 // retries earned by one second; 0 to 10 000
	Burst        int     // retries that may be saved up without requests; 0 to 1 000 000
}

// DefaultBudget is 20 % of the requests, at least one a second, ten at once.
func DefaultBudget() BudgetConfig { return BudgetConfig{Ratio: 0.2, MinPerSecond: 1, Burst: 10} }

// Budget is a placeholder.
type Budget struct{}

func NewBudget(BudgetConfig) *Budget              { return &Budget{} }
func (b *Budget) Request(now time.Duration)       {}
func (b *Budget) TryRetry(now time.Duration) bool { return true }
func (b *Budget) Tokens(now time.Duration) float64 {
	return 0
}
