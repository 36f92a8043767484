//go:build otel

package main

import (
	"context"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/tracing"
)

const hasTracing = true

func startTracing(ctx context.Context, version string, log *zap.Logger) (tracer, error) {
	return tracing.Start(ctx, version, log)
}
