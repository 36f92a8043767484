package exchange

import (
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// A dial that is starved of a descriptor is looked at again after the first of
// these, then after twice as long each time, up to the second.
const (
	minDescriptorWait  = 5 * time.Millisecond
	MaxDescriptorRetry = 250 * time.Millisecond
)

// outOfDescriptors reports whether a dial failed because no file descriptor was left, which is not
// the upstream's fault.
func outOfDescriptors(err error) bool {
	var dial *upstream.DialError
	return errors.As(err, &dial) && dial.Kind == upstream.KindNoDescriptors
}

// connection returns a pooled connection, unless fresh is set, or dials one. If no descriptor is
// left, it closes an idle connection or waits as long as the request has time. The attempt is not
// made before there is a descriptor.
func (s *sender) connection(o *upstream.GetOptions, fresh bool) (*upstream.Conn, error) {
	var until clock.Instant
	for wait := minDescriptorWait; ; wait = min(2*wait, MaxDescriptorRetry) {
		if !fresh {
			if up := s.r.Dest.UpstreamState.Pool.TryPooled(o); up != nil {
				return up, nil
			}
		}
		up, err := s.dial(*o)
		s.r.Tick()
		o.Now = 0 // that took its time
		if !outOfDescriptors(err) {
			return up, err
		}
		if until.IsZero() {
			until = s.r.Clock.Add(s.adm.maxDescriptorWait())
		}
		if !s.r.Process.CloseIdleUpstream() && !s.adm.awaitDescriptor(wait, until) {
			return nil, err
		}
	}
}

// maxDescriptorWait returns how long the attempt may wait for a descriptor.
func (a *admitter) maxDescriptorWait() time.Duration {
	if a.r.Retries > 0 {
		return a.r.MaxWait(a.r.Clock)
	}
	return a.r.MaxRequestWait(a.r.Clock)
}

// awaitDescriptor waits before another look for a descriptor. It reports false if the time is over,
// the client left, a drain began, or the queue no longer admits the attempt. The permit is returned
// meanwhile, so that the upstream's silence means nothing.
func (a *admitter) awaitDescriptor(wait time.Duration, until clock.Instant) bool {
	a.returnUnusedPermit()
	a.noAttemptReason = policy.ReasonNoDescriptors
	if !a.r.Clock.Before(until) {
		return false
	}
	a.waiter.ExpectedAt = 0
	a.waiter.Decision.Store(admission.Wait)
	end := a.await(request.Earliest(until, a.r.Clock.Add(wait)), &a.waiter)
	switch end {
	case clientLeft:
		a.r.ClientEnd.Store(request.ClientGone)
		return false
	case drainBegan:
		a.noAttemptReason = policy.ReasonDraining
		return false
	}
	switch a.acquirePermit(a.r.Tick()) {
	case admitted:
		a.noAttemptReason = policy.ReasonNone
		a.att.Began = a.r.Clock
		return true
	case clientLeftQueue:
		a.r.ClientEnd.Store(request.ClientGone)
	case drainEndedWait:
		a.noAttemptReason = policy.ReasonDraining
	}
	return false
}
