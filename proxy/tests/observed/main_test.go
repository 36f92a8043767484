// Package observed tests what operators see of requests: access log, journal, traces and counts. They say why each
// request was retried or not, and nobody forges a line in them.
package observed

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
