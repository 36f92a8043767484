package proxy

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/budget"
)

// A process retries as much as the fleet's bucket allows. Without a response of the engine it uses
// its own bucket.
func TestRetriesOfAFleetsBudget(t *testing.T) {
	wishes := 0
	inMemory(t, script(bad503), func(c *Config) {
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
		c.Default.Policy.MaxRetries = 1
		c.BudgetWanted = func() { wishes++ }
	}, func(t *testing.T, m *memory) {
		m.SetRetryPercent(0)
		m.client().send(get("/")).want(503, "busy")
		m.SetRetryPercent(100)
		time.Sleep(time.Minute) // a report of requests alone is not urgent
		key := m.BudgetReports(nil)[0].Key
		retries := func(requests int) int {
			before := m.up.sends()
			for range requests {
				m.client().send(get("/")).want(503, "busy")
			}
			return m.up.sends() - before - requests
		}
		m.ApplyBudgetGrant(key, 2, 1)
		if n := retries(3); n != 2 || wishes == 0 {
			t.Errorf("%d retries, the fleet has two; %d wishes", n, wishes)
		}
		time.Sleep(2 * budget.BudgetReportInterval)
		asks := m.BudgetReports(nil)
		if len(asks) != 1 || asks[0].Key != key || asks[0].Requests != 3 || asks[0].Spent != 2 {
			t.Errorf("told %+v", asks)
		}
		m.ApplyBudgetGrant(key, -4, 1)
		if n := retries(1); n != 0 {
			t.Errorf("%d retries of a budget that is overdrawn", n)
		}
		m.FailBudgetReport(key)
		if n := retries(4); n != 3 {
			t.Errorf("%d retries, its own bucket has three left", n)
		}
		m.ApplyBudgetGrant(key+1, 9, 1) // of a budget that is gone
		time.Sleep(time.Millisecond)
	})
}
