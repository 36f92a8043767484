// Package tls tests TLS with clients and upstreams, and unix sockets: who is trusted, what a failed handshake costs, and
// that a connection that was cut off does not look complete.
package tls

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
