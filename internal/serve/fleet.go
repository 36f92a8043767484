package serve

import (
	"context"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/proxy"
)

// sharer is the state shared with other processes. Package fleet implements it. Builds with the
// tag small, such as the container image, do not contain that package;
// docs/decisions/0016-fleet.md explains why. newFleet makes a sharer.
type sharer interface {
	// attach connects the data path to the sharer.
	attach(c *proxy.Config)
	// run shares until ctx ends.
	run(ctx context.Context, p *proxy.Server)
	Stats() *metrics.Shared
}

// sharedMetrics returns the fleet's state for metrics, nil without a fleet.
func (a *app) sharedMetrics() *metrics.Shared {
	if a.fleet == nil {
		return nil
	}
	return a.fleet.Stats()
}
