package simulate

import (
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/sim"
)

// unlimited is a budget that is never exhausted.
var unlimited = budget.Config{Ratio: 10, MinPerSecond: 10_000, Burst: 1_000_000}

// FromRoute returns the simulation's settings for a route.
func FromRoute(r *config.Route) (sim.Proxy, error) {
	p := sim.DefaultProxy()
	var err error
	if p.Policy, err = r.Policy(); err != nil {
		return p, err
	}
	p.Budget = unlimited
	if b, has := r.Budget(); has {
		p.Budget = b
	}
	p.Guard = r.Guard()
	p.AttemptTimeout, p.QueueMax, p.BreakerQueueTimeout = r.AttemptTimeout.Value(), r.QueueMax, r.QueueTimeout
	if r.Breaker == "fail-fast" {
		p.BreakerQueueTimeout = 0
	}
	return p, nil
}
