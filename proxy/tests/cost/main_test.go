// Package cost tests that a request in steady state allocates nothing. Without the race detector only: make allocations.
package cost

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
