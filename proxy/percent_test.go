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

func TestAShareOfTheRetriesIsMade(t *testing.T) {
	const requests = 2000
	inMemory(t, script(bad503), func(c *Config) { c.Default.Policy.MaxRetries = 1 }, func(t *testing.T, m *memory) {
		m.SetRetryPercent(30)
		c := m.client()
		for range requests {
			c.send(get("/")).want(503, "busy")
		}
		// Binomial: 600 with a standard deviation of 20.5; seven of them.
		if n := m.up.sends() - requests; n < 457 || n > 743 {
			t.Errorf("%d of %d retries were made, want about 30 %%", n, requests)
		}
	})
}

func TestRetryPercentStaysWithinItsRange(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), nil)
	for _, tc := range []struct{ set, want int }{{30, 30}, {-1, 0}, {101, 100}, {0, 0}, {100, 100}} {
		if p.SetRetryPercent(tc.set); p.RetryPercent() != tc.want {
			t.Errorf("%d gives %d", tc.set, p.RetryPercent())
		}
	}
}
