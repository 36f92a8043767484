// Package limits tests what one client may take: how slow and how idle it may be, how many connections there are, what
// happens without a free descriptor, and that a fault of the proxy ends only the request in which it occurs.
package limits

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
