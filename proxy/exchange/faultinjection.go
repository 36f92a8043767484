package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// stall waits out the delay, within the time that the attempt and the request
// have. CauseStatus: it is over and the attempt goes on. A drain ends it early.
func (s *sender) stall() policy.Cause {
	began := s.r.Tick()
	until := began.Add(s.att.Fault.Delay)
	end := s.adm.await(s.stallUntil(began, until), nil)
	took := s.r.Tick().Sub(began)
	s.att.Fault.Taken += took
	s.att.Fault.Delay -= took
	switch {
	case end == clientLeft:
		s.r.ClientEnd.Store(request.ClientGone)
		return policy.CauseReset
	case end != drainBegan && s.att.Fault.Delay > 0:
		return policy.CauseAttemptTimeout
	}
	s.att.Fault.Stalled = false
	return policy.CauseStatus
}

// stallUntil is until, or earlier where the attempt's or the request's time ends.
func (s *sender) stallUntil(began, until clock.Instant) clock.Instant {
	if t := s.r.AttemptTimeout(); t > 0 && !s.lastAttempt {
		until = request.Earliest(until, began.Add(t))
	}
	if !s.r.Deadline.IsZero() {
		until = request.Earliest(until, s.r.Deadline)
	}
	return until
}
