package request

import "github.com/retryproxy/retryproxy/policy/backoff"

// SetRetryPercent sets how many of a hundred retries are made, on all routes, from now on. It
// starts at 100; 0 means none. Values beyond these are clamped. A retry that is already waiting is
// still made. The resend after a pooled connection was found closed does not count as a retry here;
// see docs/decisions/0010-retry-percent.md. Safe for concurrent use.
func (p *Process) SetRetryPercent(percent int) {
	p.withheld.Store(100 - int32(min(max(percent, 0), 100)))
}

// RetryPercent returns the percentage that SetRetryPercent set last.
func (p *Process) RetryPercent() int { return 100 - int(p.withheld.Load()) }

// MakesRetry draws whether a retry is made.
func (p *Process) MakesRetry() bool {
	withheld := int64(p.withheld.Load())
	return withheld == 0 || backoff.Shared().Int64N(100) >= withheld
}
