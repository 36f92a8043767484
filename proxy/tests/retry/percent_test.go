package retry

import (
	"testing"
	"testing/synctest"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestSwitchedOffRetriesAreNotMadeAndCostNothing(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.Bad503), func(c *proxy.Config) {
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 100}
	}, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		m.SetRetryPercent(0)
		for range 20 {
			if got := c.Send(peers.Get("/")).Want(503, "busy").Header.Get("X-Retryproxy-Reason"); got != "switched_off" {
				t.Errorf("reason %q", got)
			}
		}
		synctest.Wait()
		if n, tokens := m.Up.Sends(), m.Stats().Upstreams[0].BudgetTokens; n != 20 || tokens != 100 || len(m.Seen.Retries) != 0 {
			t.Errorf("%d sends, %v tokens of 100, retries %v", n, tokens, m.Seen.Retries)
		}
		for _, o := range m.Seen.Outcomes {
			if o != policy.GaveUp(policy.ReasonSwitchedOff) {
				t.Fatalf("outcome %v", o)
			}
		}
		m.SetRetryPercent(100) // live, on the same connection
		if got := c.Send(peers.Get("/")).Want(503, "busy").Header.Get("X-Retryproxy-Reason"); got != "retries_exhausted" || m.Up.Sends() != 24 {
			t.Errorf("reason %q after %d sends", got, m.Up.Sends())
		}
	})
}

// A request that would not be retried anyway has its own reason, not retries_off.
func TestTheSwitchIsTheReasonOnlyWhereARetryWasPossible(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.Bad503)), nil)
	p.SetRetryPercent(0)
	if got := p.Dial().Send(peers.Post("x")).Want(503, "busy").Header.Get("X-Retryproxy-Reason"); got != "not_idempotent" {
		t.Errorf("reason %q", got)
	}
}
