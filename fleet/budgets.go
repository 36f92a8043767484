package fleet

import (
	"context"
	"time"

	"github.com/retryproxy/retryproxy/policy/budget"
)

// BudgetWanted is the function for proxy.Config.BudgetWanted: a budget has something to
// report. It does not block.
func (f *Fleet) BudgetWanted() { notify(f.retriesSpent) }

// shareBudgets shares the retry budgets of all processes, until ctx ends.
func (f *Fleet) shareBudgets(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		for _, a := range local.BudgetReports(nil) {
			f.shareBudget(ctx, a, local)
		}
		sleep(ctx, spread(budget.BudgetReportInterval))
		quiet := time.NewTimer(heartbeatInterval)
		select {
		case <-ctx.Done():
		case <-f.retriesSpent:
		case <-quiet.C:
		}
		quiet.Stop()
	}
}

// shareBudget reports one budget. It does not wait for an engine that does not respond.
func (f *Fleet) shareBudget(ctx context.Context, a budget.Report, local Local) {
	if !f.link.up() {
		local.FailBudgetReport(a.Key)
		return
	}
	c := a.Config
	level, err := f.link.number(ctx, budgetScript, []string{f.key("budget", a.Key)}, decimal(c.Ratio), decimal(c.MinPerSecond), c.Burst, a.Requests, a.Spent)
	if err != nil {
		local.FailBudgetReport(a.Key)
		return
	}
	local.ApplyBudgetGrant(a.Key, float64(level)/1000, int(f.members.Load()))
}
