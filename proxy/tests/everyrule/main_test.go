// Package everyrule tests that each rule holds over each pair of protocols, HTTP/1.1 and HTTP/2 with the client and with
// the upstream: one table of rules, run for all pairs, and random bodies that every attempt carries whole or visibly cut off.
package everyrule

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
