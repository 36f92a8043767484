package serve

import (
	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/config"
)

// setPercent changes the percentage of retries that are made.
func (a *app) setPercent(percent int, why string) {
	was := a.proxy.RetryPercent()
	a.proxy.SetRetryPercent(percent)
	if was != percent {
		a.log.Warn("the share of retries that are made was changed", zap.Int("from_percent", was), zap.Int("to_percent", percent), zap.String("why", why))
	}
}

// reloadPercent applies the setting if it has changed. Otherwise a percentage that was set
// live is kept.
func (a *app) reloadPercent(old, s *config.Settings) {
	if s.RetryPercent != old.RetryPercent {
		a.setPercent(s.RetryPercent, "configuration")
	}
}
