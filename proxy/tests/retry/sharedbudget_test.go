package retry

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A process retries as much as the fleet's bucket allows. Without a response of the engine it uses
// its own bucket.
func TestRetriesOfAFleetsBudget(t *testing.T) {
	wishes := 0
	proxytest.InMemory(t, peers.Script(peers.Bad503), func(c *proxy.Config) {
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
		c.Default.Policy.MaxRetries = 1
		c.BudgetWanted = func() { wishes++ }
	}, func(t *testing.T, m *proxytest.Memory) {
		m.SetRetryPercent(0)
		m.Client().Send(peers.Get("/")).Want(503, "busy")
		m.SetRetryPercent(100)
		time.Sleep(time.Minute) // a report of requests alone is not urgent
		key := m.BudgetReports(nil)[0].Key
		retries := func(requests int) int {
			before := m.Up.Sends()
			for range requests {
				m.Client().Send(peers.Get("/")).Want(503, "busy")
			}
			return m.Up.Sends() - before - requests
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
