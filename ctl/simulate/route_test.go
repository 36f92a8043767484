package simulate

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/ctl/sim"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// routeOf returns the default route of these settings.
func routeOf(t *testing.T, env ...string) *config.Route {
	t.Helper()
	s, problems := config.Load(append([]string{"RETRYPROXY_UPSTREAM=http://localhost:3000"}, env...))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return s.Find("default")
}

func TestSimulateTakesARoutesSettings(t *testing.T) {
	p, err := FromRoute(routeOf(t, "RETRYPROXY_MAX_RETRIES=1", "RETRYPROXY_BACKOFF=fixed", "RETRYPROXY_BACKOFF_BASE=7s", "RETRYPROXY_ATTEMPT_TIMEOUT=3s",
		"RETRYPROXY_BREAKER=fail-fast", "RETRYPROXY_QUEUE_MAX=9", "RETRYPROXY_CONCURRENCY_LIMIT=30", "RETRYPROXY_BUDGET_RATIO=off"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Policy.MaxRetries != 1 || p.Policy.Backoff.Wait(backoff.Step{}, backoff.Shared()) != 7*time.Second || p.AttemptTimeout != 3*time.Second {
		t.Errorf("policy %+v, attempt timeout %v", p.Policy, p.AttemptTimeout)
	}
	if p.BreakerQueueTimeout != 0 || p.QueueMax != 9 || p.Guard.ConcurrencyLimit != breaker.ConcurrencyLimitFixed || p.Guard.FixedLimit != 30 || p.Guard.NoBreaker {
		t.Errorf("held for %v, at most %d, guard %+v", p.BreakerQueueTimeout, p.QueueMax, p.Guard)
	}
	if p.Budget.Ratio < 1 {
		t.Errorf("budget %+v for a route without one", p.Budget)
	}
}

// The simulated retryproxy has the settings of one that is started with nothing but an upstream.
func TestSimulatedDefaultsAreTheProxys(t *testing.T) {
	p, err := FromRoute(routeOf(t))
	if err != nil {
		t.Fatal(err)
	}
	d := sim.DefaultProxy()
	if p.Budget != d.Budget || p.AttemptTimeout != d.AttemptTimeout || p.QueueMax != d.QueueMax || p.BreakerQueueTimeout != d.BreakerQueueTimeout || p.Guard != d.Guard ||
		p.Policy.MaxRetries != d.Policy.MaxRetries || p.Policy.Backoff != d.Policy.Backoff || p.Policy.Throttled != d.Policy.Throttled {
		t.Errorf("by settings\n%+v\nin storms\n%+v", p, d)
	}
}
