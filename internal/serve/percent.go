package serve

import (
	"go.uber.org/zap"
)

// setPercent changes the percentage of retries that are made, as the admin listener was asked to.
func (a *app) setPercent(percent int) {
	was := a.proxy.RetryPercent()
	a.proxy.SetRetryPercent(percent)
	if was != percent {
		a.log.Warn("the share of retries that are made was changed", zap.Int("from_percent", was), zap.Int("to_percent", percent))
	}
}
