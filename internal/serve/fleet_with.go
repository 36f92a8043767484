//go:build !small

package serve

import (
	"context"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/fleet"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/proxy"
)

// The fleet accesses the data path through this interface.
var _ fleet.Local = (*proxy.Server)(nil)

// newFleet reads the files that the settings name for the shared engine; it returns nil
// without an engine. It opens no connection.
func newFleet(s *config.Settings, log *zap.Logger) (sharer, error) {
	if !s.SharedEngine.Set() {
		return nil, nil
	}
	f, err := fleet.New(fleet.Options{Engine: s.SharedEngine, Log: log})
	if err != nil {
		return nil, err
	}
	return shared{f}, nil
}

// shared adapts a Fleet to sharer.
type shared struct{ *fleet.Fleet }

func (s shared) attach(c *proxy.Config) {
	c.RateLimitPauseBegan, c.RateLimitWanted, c.BudgetWanted = s.RateLimitPauseBegan, s.RateLimitWanted, s.BudgetWanted
}

func (s shared) run(ctx context.Context, p *proxy.Server) { s.Run(ctx, p) }
