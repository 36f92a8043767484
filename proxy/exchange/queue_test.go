package exchange

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// mayOpen has a circuit breaker that two failures in a row open. Requests queue for it for up to 20 s.
func mayOpen(_ *served, c *settings.Config) {
	c.Default.Guard = breaker.Options{After: 2, ConcurrencyLimit: breaker.ConcurrencyLimitOff}
	c.Default.QueueTimeout = 20 * time.Second
}

func failsFast(s *served, c *settings.Config) {
	mayOpen(s, c)
	c.Default.FailFast = true
}

// While the breaker is open, a retry waits for it in the queue and costs neither a retry nor budget.
func TestTheBreaker(t *testing.T) {
	refused := func(n int, then ...step) (all []step) {
		for range n {
			all = append(all, step{refuses})
		}
		return append(all, then...)
	}
	bad := []step{{answer(503, "a")}, {answer(503, "b")}, {answer(503, "c")}, {answer(503, "d")}, {ok200}}
	for _, c := range []struct {
		name   string
		change func(s *served, c *settings.Config)
		steps  []step
		story  string // see served.outline
	}{
		{"the upstream comes back", mayOpen, refused(14, step{ok200}),
			"not_sent 0 after _, waited _, retry connect_failure, not_sent 0 after _, waited _, queued _, retry connect_failure, _ GET /a, ok 200 after _, _ done 200 recovered 3"},
		{"failures that are known beforehand use up no retry", all(mayOpen, func(_ *served, c *settings.Config) { c.Default.Policy.MaxRetries = 2 }), bad,
			"_ GET /a, unknown 503 after _, waited _, retry status_503, _ GET /a, unknown 503 after _, waited _, queued _, retry status_503, _ GET /a, unknown 503 after _, waited _, queued _, retry status_503, _ GET /a, unknown 503 after _, waited _, queued _, retry status_503, _ GET /a, ok 200 after _, _ done 200 recovered 5"},
		{"they cost no budget", all(mayOpen, withBudget(budget.Config{Burst: 1})), bad,
			"_ GET /a, unknown 503 after _, waited _, retry status_503, _ GET /a, unknown 503 after _, waited _, queued _, retry status_503, _ GET /a, unknown 503 after _, waited _, queued _, retry status_503, _ GET /a, unknown 503 after _, waited _, queued _, retry status_503, _ GET /a, ok 200 after _, _ done 200 recovered 5"},
		{"without budget", all(mayOpen, withBudget(budget.Config{})), refused(1),
			"not_sent 0 after _, _ done 502 gave_up_budget_exhausted 1"},
		{"it stays down", mayOpen, refused(1000),
			"not_sent 0 after _, waited _, retry connect_failure, not_sent 0 after _, waited _, queued _, _ done 503 queue_timeout 2"},
		{"fail fast", failsFast, refused(1000),
			"not_sent 0 after _, waited _, retry connect_failure, not_sent 0 after _, waited _, _ done 503 fail_fast 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, c.steps, c.change, func(s *served) {
				s.serve(get())
				if got := s.outline(); got != c.story {
					s.Errorf("%q", got)
				}
			})
		})
	}
}
