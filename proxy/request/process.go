package request

import (
	"sync/atomic"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// Process is what all exchanges of a process share. It is safe for concurrent use. Set the
// functions before the first request.
type Process struct {
	Clock           clock.Clock
	Attempts        attempt.Host
	RetryBuffer     RetryBuffer
	RateLimitPauses ratelimit.Pauses
	withheld        atomic.Int32 // retries not made, in percent
	Waiting         atomic.Int64 // requests that wait for a retry or a permit
	Paused          atomic.Int64 // among them, requests that wait for the end of a shared rate-limit pause
	Draining        atomic.Bool
	WaitsEnd        atomic.Int64 // while draining: when waiting for permits ends, since the start

	OnFault           func(fault any) // called with a panic that was contained
	OnWait            func()          // called when a wait among many begins
	CloseIdleUpstream func() bool     // closes an idle connection to any upstream to free its descriptor; false: there is none
}

// SetRetryPercent sets the percentage of retries that are made from now on, on all routes. It
// starts at 100; 0 means none. Values outside 0 to 100 are clamped. A retry that is already
// waiting is still made. The resend after a pooled connection was found closed does not count as a
// retry here; see docs/decisions/0010-retry-percent.md. It is safe for concurrent use.
func (p *Process) SetRetryPercent(percent int) {
	p.withheld.Store(100 - int32(min(max(percent, 0), 100)))
}

// RetryPercent returns the percentage that SetRetryPercent set last.
func (p *Process) RetryPercent() int { return 100 - int(p.withheld.Load()) }

// MakesRetry draws at random whether a retry is made.
func (p *Process) MakesRetry() bool {
	withheld := p.withheld.Load()
	return withheld == 0 || draw(withheld)
}

func draw(withheld int32) bool { return backoff.Shared().Int64N(100) >= int64(withheld) }

// RetryBuffer is the memory, in bytes, for request bodies and failed responses that are kept for
// retries. It is safe for concurrent use.
type RetryBuffer struct {
	Limit int64
	Used  atomic.Int64
}

// Take reserves n bytes. It reports false and reserves nothing if they do not fit.
func (m *RetryBuffer) Take(n int) bool {
	if m.Used.Add(int64(n)) > m.Limit {
		m.Used.Add(int64(-n))
		return false
	}
	return true
}

// Give returns n bytes reserved by Take.
func (m *RetryBuffer) Give(n int) { m.Used.Add(int64(-n)) }
