package proxy

import (
	"testing"
	"testing/synctest"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/budget"
)

func TestSwitchedOffRetriesAreNotMadeAndCostNothing(t *testing.T) {
	inMemory(t, script(bad503), func(c *Config) {
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 100}
	}, func(t *testing.T, m *memory) {
		c := m.client()
		m.SetRetryPercent(0)
		for range 20 {
			if got := c.send(get("/")).want(503, "busy").Header.Get("X-Retryproxy-Reason"); got != "switched_off" {
				t.Errorf("reason %q", got)
			}
		}
		synctest.Wait()
		if n, tokens := m.up.sends(), m.Stats().Upstreams[0].BudgetTokens; n != 20 || tokens != 100 || len(m.seen.retries) != 0 {
			t.Errorf("%d sends, %v tokens of 100, retries %v", n, tokens, m.seen.retries)
		}
		for _, o := range m.seen.outcomes {
			if o != policy.GaveUp(policy.ReasonSwitchedOff) {
				t.Fatalf("outcome %v", o)
			}
		}
		m.SetRetryPercent(100) // live, on the same connection
		if got := c.send(get("/")).want(503, "busy").Header.Get("X-Retryproxy-Reason"); got != "retries_exhausted" || m.up.sends() != 24 {
			t.Errorf("reason %q after %d sends", got, m.up.sends())
		}
	})
}

// A request that would not be retried anyway has its own reason, not retries_off.
func TestTheSwitchIsTheReasonOnlyWhereARetryWasPossible(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(bad503)), nil)
	p.SetRetryPercent(0)
	if got := p.dial().send(post("x")).want(503, "busy").Header.Get("X-Retryproxy-Reason"); got != "not_idempotent" {
		t.Errorf("reason %q", got)
	}
}
