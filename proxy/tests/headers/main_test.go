// Package headers tests which requests are accepted and what is forwarded: every header, target and status in its form,
// malformed requests refused, the client's address from the PROXY protocol, forward proxying and upgrades.
package headers

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
