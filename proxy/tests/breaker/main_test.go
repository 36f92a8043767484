// Package breaker tests that an upstream in trouble is spared and that its clients lose nothing by it: circuit breaker,
// probes, slow start, concurrency limit, and the queue before them, in outages, restarts, deploys and drains.
package breaker

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
