package main

import (
	"context"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/proxy"
)

// sharer is what is shared with other processes, as the rest of the program
// sees it: package fleet, which the container image leaves out (the tag small;
// docs/decisions/0016-fleet.md says why). newFleet makes one.
type sharer interface {
	// attach makes the data path tell of what others should know.
	attach(c *proxy.Config)
	// run shares until ctx ends.
	run(ctx context.Context, p *proxy.Server)
	metrics() *metrics.Shared
}

// sharedMetrics is the fleet's picture in the form that metrics shows.
func (a *app) sharedMetrics() *metrics.Shared {
	if a.fleet == nil {
		return nil
	}
	return a.fleet.metrics()
}
