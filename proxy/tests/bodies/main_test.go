// Package bodies tests that bodies arrive as they were sent, in whatever framing, in both directions and in every attempt,
// and that a body that was cut off is never taken for a whole one.
package bodies

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
