// Package http2 tests HTTP/2 with clients and upstreams: multiplexed requests are retried, limited and ended each for
// itself; gRPC and WebSocket included.
package http2

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
