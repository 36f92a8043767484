package fleet

import (
	"context"
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// BudgetWanted is for proxy.Config.BudgetWanted: a budget has something to
// tell. It does not block.
func (f *Fleet) BudgetWanted() { notify(f.retriesSpent) }

func (f *Fleet) budgetKey(key uint64) string {
	return f.prefix + "budget:" + strconv.FormatUint(key, 16)
}

// shareBudgets keeps the retry budgets of all together, until ctx ends.
func (f *Fleet) shareBudgets(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		for _, a := range local.BudgetReports(nil) {
			f.shareBudget(ctx, a, local)
		}
		sleep(ctx, spread(policy.BudgetReportInterval))
		quiet := time.NewTimer(heartbeatInterval)
		select {
		case <-ctx.Done():
		case <-f.retriesSpent:
		case <-quiet.C:
		}
		quiet.Stop()
	}
}

// shareBudget tells of one budget. While the engine does not answer nobody waits for
// it to.
func (f *Fleet) shareBudget(ctx context.Context, a policy.BudgetReport, local Local) {
	if !f.link.up() {
		local.FailBudgetReport(a.Key)
		return
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	c := a.Config
	level, err := f.link.number(ctx, budgetScript, []string{f.budgetKey(a.Key)}, number(c.Ratio), number(c.MinPerSecond), c.Burst, a.Requests, a.Spent)
	if err != nil {
		local.FailBudgetReport(a.Key)
		return
	}
	local.ApplyBudgetGrant(a.Key, float64(level)/1000, int(f.members.Load()))
}
