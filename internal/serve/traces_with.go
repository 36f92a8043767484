//go:build otel

package serve

import (
	"context"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/tracing"
)

const hasTracing = true

func startTracing(ctx context.Context, version string, log *zap.Logger) (tracer, error) {
	return tracing.Start(ctx, version, log)
}
