package request

import (
	"sync/atomic"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// Process is what all exchanges of a process share. Safe for concurrent use; the functions are set
// before the first request.
type Process struct {
	Clock           clock.Clock
	Attempts        attempt.Host
	RetryBuffer     RetryBuffer
	RateLimitPauses ratelimit.Pauses
	withheld        atomic.Int32 // of a hundred retries, those not made
	Waiting         atomic.Int64 // requests that wait for a retry or a permit
	Draining        atomic.Bool
	WaitsEnd        atomic.Int64 // while draining: when nobody waits for a permit any longer, since the start

	OnFault           func(fault any) // takes a panic that was contained
	OnWait            func()          // is called when a wait among many begins
	CloseIdleUpstream func() bool     // closes an idle connection to any upstream for its descriptor; false: there is none
}
