package proxy

import "github.com/retryproxy/retryproxy/policy"

// SetRetryPercent says how many of a hundred retries that would be made are
// made, of all routes, from now on: 100 at the start, 0 for none. A number
// beyond these counts as the nearest. What waits for its retry already still
// makes it. The retry after a kept connection was found closed is none in
// this sense; see docs/decisions/0010-retry-percent.md. Safe for concurrent use.
func (s *Server) SetRetryPercent(percent int) {
	s.withheld.Store(100 - int32(min(max(percent, 0), 100)))
}

// RetryPercent is what SetRetryPercent said last.
func (s *Server) RetryPercent() int { return 100 - int(s.withheld.Load()) }

// makesRetry draws whether a retry that would be made is made.
func (s *Server) makesRetry() bool {
	withheld := int64(s.withheld.Load())
	return withheld == 0 || policy.Shared().Int64N(100) >= withheld
}
