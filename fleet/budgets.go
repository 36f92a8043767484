package fleet

import (
	"context"
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// BudgetWanted is for proxy.Config.BudgetWanted: a budget has something to
// tell. It does not block.
func (f *Fleet) BudgetWanted() { poke(f.spent) }

func (f *Fleet) budgetKey(key uint64) string {
	return f.prefix + "budget:" + strconv.FormatUint(key, 16)
}

// settleBudgets keeps the retry budgets of all together, until ctx ends.
func (f *Fleet) settleBudgets(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		for _, a := range local.BudgetAsks(nil) {
			f.settle(ctx, a, local)
		}
		sleep(ctx, spread(policy.BudgetAskEvery))
		quiet := time.NewTimer(beatEvery)
		select {
		case <-ctx.Done():
		case <-f.spent:
		case <-quiet.C:
		}
		quiet.Stop()
	}
}

// settle tells of one budget. While the engine does not answer nobody waits for
// it to.
func (f *Fleet) settle(ctx context.Context, a policy.BudgetAsk, local Local) {
	if !f.link.up() {
		local.FailBudget(a.Key)
		return
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	c := a.Config
	level, err := f.link.number(ctx, settled, []string{f.budgetKey(a.Key)}, number(c.Ratio), number(c.MinPerSecond), c.Burst, a.Requests, a.Spent)
	if err != nil {
		local.FailBudget(a.Key)
		return
	}
	local.GrantBudget(a.Key, float64(level)/1000, int(f.members.Load()))
}
