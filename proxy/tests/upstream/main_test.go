// Package upstream tests how the endpoints of an upstream are used: all of them, no ejected one, over pooled connections
// that are reused only where that is safe, and without endpoints that vanished.
package upstream

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
