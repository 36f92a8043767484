package request

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// ReadClientDeadline reads how long the client will wait. Its time runs from the headers on,
// whatever becomes of the body. The request timeout still applies.
func (cr *Request) ReadClientDeadline() {
	w := &cr.clientDeadline
	w.Read(cr.HTTP, cr.Route.Forward.Deadlines)
	if w.Malformed != 0 && cr.Settings.BadDeadline != nil {
		for f := range forward.DeadlineHeader(forward.NumDeadlineHeaders) {
			if w.Malformed.Has(f) {
				cr.Settings.BadDeadline(f)
			}
		}
	}
	if w.Given {
		cr.ClientLeavesAt = cr.Began.Add(w.Timeout)
		cr.Deadline = cr.Began.Add(cr.Route.OwnShare(w.Timeout))
	}
}

// RequestTimeout returns the time that the route gives a request, without what is kept back for a
// fallback; 0 means none. A gRPC call may be a stream whose first headers come late, and nothing
// tells which calls are. They have only the deadline that their client gave (grpc-timeout), where
// that is obeyed.
func (cr *Request) RequestTimeout() time.Duration {
	if cr.clientDeadline.GRPC && cr.Dest.Forward.Deadlines.Has(forward.DeadlineGRPC) {
		return 0
	}
	return cr.Dest.OwnShare(cr.Dest.RequestTimeout)
}

// RespondBy returns when the request must have its response if it may take limit from when it was
// sent; 0 means any time. Zero means never.
func (cr *Request) RespondBy(limit time.Duration) clock.Instant {
	leaves := cr.ClientLeavesAt
	if w := &cr.clientDeadline; w.Given && cr.Dest.IsFallback {
		leaves = cr.Began.Add(cr.Dest.OwnShare(w.Timeout)) // the rest is for the fallbacks after it
	}
	if limit <= 0 || cr.sentAt.IsZero() {
		return leaves
	}
	return Earliest(leaves, cr.sentAt.Add(limit))
}

// timeLeft returns how long the upstream has for its response, as far as is known before the
// request is sent.
func (cr *Request) timeLeft(now clock.Instant) time.Duration {
	left := backoff.Forever
	if !cr.Deadline.IsZero() {
		left = cr.Deadline.Sub(now)
	}
	if limit := cr.RequestTimeout(); limit > 0 && cr.sentAt.IsZero() {
		left = min(left, limit)
	}
	return left
}

// Earliest returns the earlier of two times. A zero a means never.
func Earliest(a, b clock.Instant) clock.Instant {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// StartClock starts the deadline of the request, once: when the request was first sent
// whole, or when the first attempt ended before that.
func (cr *Request) StartClock(t clock.Instant) {
	if cr.sentAt.IsZero() {
		cr.clockFrom(t)
	}
}

func (cr *Request) clockFrom(t clock.Instant) {
	cr.sentAt = t
	if limit := cr.RequestTimeout(); limit > 0 {
		cr.Deadline = Earliest(cr.Deadline, t.Add(limit))
	}
}

// AttemptTimeout returns the route's attempt timeout, 0 for none. A gRPC call has none: the first
// headers of a stream may come late.
func (cr *Request) AttemptTimeout() time.Duration {
	if cr.GRPC {
		return 0
	}
	return cr.Dest.AttemptTimeout
}

// BodyIdle returns how long a body may pause, either way, 0 for any time. A gRPC stream may have
// nothing to say.
func (cr *Request) BodyIdle() time.Duration {
	if cr.GRPC {
		return 0
	}
	return cr.Dest.BodyIdleTimeout
}

// AttemptEnd returns what a failed attempt with the result res says about the upstream.
func (cr *Request) AttemptEnd(a *attempt.Attempt, res *policy.Attempt) breaker.AttemptEnd {
	e := breaker.AttemptEnd{Status: res.JudgedStatus(), Key: cr.UrlKey()}
	switch res.Cause {
	case policy.CauseStatus:
		e.Kind = breaker.Responded
	case policy.CauseIdleClose, policy.CauseRefusedStream:
		e.Kind = breaker.Unsent
	case policy.CauseDial, policy.CauseTLS:
		e.Kind = breaker.Reset // connected, and ended before a byte was taken
		if a.DialErr != nil {
			e.Kind = admission.DialEndKind(a.DialErr)
		}
	case policy.CauseAttemptTimeout:
		e.Kind = breaker.TimedOut
	default:
		e.Kind = breaker.Reset
	}
	return e
}

// TimeoutEndKind returns how an attempt ended that timed out. If the time was the client's
// own, the attempt counts as abandoned: clients with short deadlines must not open the
// breaker of an upstream that is as fast as ever for others.
func (cr *Request) TimeoutEndKind() breaker.EndKind {
	if w := &cr.clientDeadline; w.Given && !cr.Now().Before(cr.Began.Add(cr.Dest.OwnShare(w.Timeout))) {
		return breaker.Abandoned
	}
	return breaker.TimedOut
}

// MaxRequestWait is how long the request may wait at most before it is sent.
func (cr *Request) MaxRequestWait(now clock.Instant) time.Duration {
	room := min(cr.timeLeft(now), LongestWait)
	if limit := cr.RequestTimeout(); limit > 0 && cr.sentAt.IsZero() { // its clock has not started: the body is not read yet
		room = min(room, cr.Began.Add(limit).Sub(now))
	}
	return room
}

// MaxWait is how long the request may wait before its next attempt at most.
func (cr *Request) MaxWait(now clock.Instant) time.Duration {
	room := cr.MaxRequestWait(now)
	if window := cr.Route.Policy.Window; window > 0 && cr.Attempts > 0 {
		room = min(room, cr.Began.Add(window).Sub(now)+1)
	}
	return room
}

func (cr *Request) IdleOrForever() time.Duration {
	if t := cr.BodyIdle(); t > 0 {
		return t
	}
	return 365 * 24 * time.Hour
}

// longestWait bounds a wait if no request timeout does, so that an upstream cannot block its
// clients with one Retry-After.
const LongestWait = 10 * time.Minute
