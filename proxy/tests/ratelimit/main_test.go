// Package ratelimit tests that an upstream gets no more requests per second than agreed, and that one 429 pauses all
// requests that share its limit, in one process and in a fleet.
package ratelimit

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
