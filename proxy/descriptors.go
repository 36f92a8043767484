package proxy

import (
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// A dial that is starved of a descriptor is looked at again after the first of
// these, then after twice as long each time, up to the second.
const (
	minDescriptorWait  = 5 * time.Millisecond
	maxDescriptorRetry = 250 * time.Millisecond
)

// outOfDescriptors says whether a dial failed for want of a file descriptor, which is no
// fault of the upstream.
func outOfDescriptors(err error) bool {
	var dial *upstream.DialError
	return errors.As(err, &dial) && dial.Kind == upstream.KindNoDescriptors
}

// connection gives a pooled connection, unless fresh, or dials. Starved of a descriptor
// it closes an idle connection, or waits, as long as the request has time: the attempt
// is not made before there is one.
func (x *exchange) connection(o *upstream.GetOptions, fresh bool) (*upstream.Conn, error) {
	var until instant
	for wait := minDescriptorWait; ; wait = min(2*wait, maxDescriptorRetry) {
		if !fresh {
			if up := x.route.upstream.pool.TryPooled(o); up != nil {
				return up, nil
			}
		}
		up, err := x.dial(*o)
		x.tick()
		o.Now = 0 // that took its time
		if !outOfDescriptors(err) {
			return up, err
		}
		if until.IsZero() {
			until = x.clock.Add(x.maxDescriptorWait())
		}
		if !x.c.server.closeIdle() && !x.awaitDescriptor(wait, until) {
			return nil, err
		}
	}
}

// maxDescriptorWait is how long the attempt may wait for a descriptor.
func (x *exchange) maxDescriptorWait() time.Duration {
	if x.retries > 0 {
		return x.maxWait(x.clock)
	}
	return x.maxRequestWait(x.clock)
}

// awaitDescriptor lets some time pass; no when it is over, or something else ended
// the wait: the client left, a drain, or the queue lets the attempt in no more. Its place at the
// upstream is another's meanwhile, so that the upstream's silence means nothing.
func (x *exchange) awaitDescriptor(wait time.Duration, until instant) bool {
	x.returnUnusedPermit()
	x.noAttemptReason = policy.ReasonNoDescriptors
	if !x.clock.Before(until) {
		return false
	}
	x.waiter.expectedAt = 0
	x.waiter.decision.Store(decisionWait)
	end := x.c.await(earliest(until, x.clock.Add(wait)), &x.waiter)
	switch end {
	case clientLeft:
		x.clientEnd.Store(clientGone)
		return false
	case drainBegan:
		x.noAttemptReason = policy.ReasonDraining
		return false
	}
	switch x.acquirePermit(x.tick()) {
	case admitted:
		x.noAttemptReason = policy.ReasonNone
		x.attemptBegan = x.clock
		return true
	case clientLeftQueue:
		x.clientEnd.Store(clientGone)
	case drainEndedWait:
		x.noAttemptReason = policy.ReasonDraining
	}
	return false
}

// closeIdle closes an idle connection to any upstream for its descriptor; no when
// there is none.
func (s *Server) closeIdle() bool {
	for _, u := range s.settings.Load().upstreams() {
		if u.pool.CloseOldest() {
			return true
		}
	}
	return false
}
