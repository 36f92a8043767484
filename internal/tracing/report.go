package tracing

import (
	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/boundedlog"
)

// reporter logs errors of the SDK: the first of each minute. A collector that is down fails
// every five seconds; the other errors are only counted.
type reporter struct {
	log   *zap.Logger
	bound boundedlog.Limiter
}

func newReporter(log *zap.Logger) *reporter {
	r := &reporter{log: log}
	r.bound.PerMinute, r.bound.OnSuppressed = 1, r.tell
	return r
}

// Handle implements otel.ErrorHandler. It is safe for concurrent use.
func (r *reporter) Handle(err error) {
	if r.bound.Allow() {
		r.log.Warn("OpenTelemetry reports an error; requests are not affected", zap.Error(err))
	}
}

func (r *reporter) tell(suppressed int) {
	r.log.Warn("more errors of OpenTelemetry, lines suppressed", zap.Int("count", suppressed))
}
