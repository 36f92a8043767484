package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
)

// readClientDeadline reads how long the client will wait. Its time runs from the head
// on, whatever becomes of the body; the request timeout still applies beside it.
func (x *exchange) readClientDeadline() {
	w := &x.clientDeadline
	w.Read(x.req, x.route.Forward.Deadlines)
	if w.Malformed != 0 && x.set.BadDeadline != nil {
		for f := range forward.DeadlineHeader(forward.NumDeadlineHeaders) {
			if w.Malformed.Has(f) {
				x.set.BadDeadline(f)
			}
		}
	}
	if w.Given {
		x.clientLeavesAt = x.began.Add(w.Timeout)
		x.deadline = x.began.Add(x.route.ownShare(w.Timeout))
	}
}

// requestTimeout is the route's own, without what is kept back for a fallback; 0 for none. A gRPC call may be a stream
// whose first header comes late, and nothing tells which are: such calls have
// only the deadline that their client gave (grpc-timeout), where that is heeded.
func (x *exchange) requestTimeout() time.Duration {
	if x.clientDeadline.GRPC && x.route.Forward.Deadlines.Has(forward.DeadlineGRPC) {
		return 0
	}
	return x.route.ownShare(x.route.RequestTimeout)
}

// respondBy is when the request has to be answered, with so much time for it from when it
// was sent; 0 for any. Zero: at any time.
func (x *exchange) respondBy(limit time.Duration) instant {
	if limit <= 0 || x.sentAt.IsZero() {
		return x.clientLeavesAt
	}
	return earliest(x.clientLeavesAt, x.sentAt.Add(limit))
}

// timeLeft is how long the upstream has for its response, as far as is known
// before the request is sent: until the deadline that runs, or from the
// request being sent on.
func (x *exchange) timeLeft(now instant) time.Duration {
	left := policy.Forever
	if !x.deadline.IsZero() {
		left = x.deadline.Sub(now)
	}
	if limit := x.requestTimeout(); limit > 0 && x.sentAt.IsZero() {
		left = min(left, limit)
	}
	return left
}

// earliest is the earlier of two times, of which a may be zero for never.
func earliest(a, b instant) instant {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
