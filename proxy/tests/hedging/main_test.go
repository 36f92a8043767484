// Package hedging tests that a second attempt beside a slow one is sent only where a retry would be allowed, that the first
// good response wins, and that the loser is ended and counted.
package hedging

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
