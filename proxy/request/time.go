package request

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// Time is when a request began, and its deadlines.
type Time struct {
	of *Request

	Began          clock.Instant
	Clock          clock.Instant    // time of the last Tick; every step that waits ticks after the wait
	sentAt         clock.Instant    // when the request was first sent whole, or first failed
	Deadline       clock.Instant    // zero: none (yet)
	ClientLeavesAt clock.Instant    // when the client leaves, as it announced; zero: unknown
	clientDeadline forward.Deadline // the deadline that the client sent
}

// Tick reads the clock and keeps the time for the steps that follow until one waits. Reading it
// for each step would cost as much as some of the steps.
func (t *Time) Tick() clock.Instant {
	t.Clock = t.Now()
	return t.Clock
}

// Now reads the clock and does not keep the time.
func (t *Time) Now() clock.Instant { return t.of.Process.Clock.Now() }

// Waited returns how long a wait took that began at began and ends now, and keeps the time.
func (t *Time) Waited(began clock.Instant) time.Duration { return t.Tick().Sub(began) }

// Since returns how long before the last Tick began was.
func (t *Time) Since(began clock.Instant) time.Duration { return t.Clock.Sub(began) }

// SinceStart returns the time of the last Tick as policies count it, since the start of the process.
func (t *Time) SinceStart() time.Duration { return t.of.Process.Clock.Since(t.Clock) }

// Left returns how long the request had at the last Tick, LongestWait if it has no deadline.
func (t *Time) Left() time.Duration {
	if t.Deadline.IsZero() {
		return LongestWait
	}
	return t.Deadline.Sub(t.Clock)
}

// IsOver reports whether the deadline has passed.
func (t *Time) IsOver() bool { return !t.Deadline.IsZero() && !t.Now().Before(t.Deadline) }

// ReadClients reads how long the client will wait. Its time runs from the arrival of the headers,
// however long the body takes. The request timeout still applies.
func (t *Time) ReadClients() {
	w := &t.clientDeadline
	w.Read(t.of.HTTP)
	if w.Malformed != 0 && t.of.Settings.BadDeadline != nil {
		for f := range forward.DeadlineHeader(forward.NumDeadlineHeaders) {
			if w.Malformed.Has(f) {
				t.of.Settings.BadDeadline(f)
			}
		}
	}
	if w.Given {
		t.ClientLeavesAt = t.Began.Add(w.Timeout)
		t.Deadline = t.Began.Add(t.of.Route.OwnShare(w.Timeout))
	}
}

// RequestTimeout returns the time that the route gives a request, without the share of a fallback;
// 0 means none. A gRPC call has only the deadline of its client (grpc-timeout),
// because it may be a stream whose first headers come late.
func (t *Time) RequestTimeout() time.Duration {
	if t.clientDeadline.GRPC {
		return 0
	}
	return t.of.Dest.OwnShare(t.of.Dest.RequestTimeout)
}

// RespondBy returns when the request must have its response if it may take limit after it was
// sent; a limit of 0 means no limit. A zero result means never.
func (t *Time) RespondBy(limit time.Duration) clock.Instant {
	leaves := t.ClientLeavesAt
	if w := &t.clientDeadline; w.Given && t.of.Dest.IsFallback {
		leaves = t.Began.Add(t.of.Dest.OwnShare(w.Timeout)) // the rest is for later fallbacks
	}
	if limit <= 0 || t.sentAt.IsZero() {
		return leaves
	}
	return clock.Earliest(leaves, t.sentAt.Add(limit))
}

// left returns how long the upstream has for its response, as far as is known before the request
// is sent.
func (t *Time) left(now clock.Instant) time.Duration {
	left := backoff.Forever
	if !t.Deadline.IsZero() {
		left = t.Deadline.Sub(now)
	}
	if limit := t.RequestTimeout(); limit > 0 && t.sentAt.IsZero() {
		left = min(left, limit)
	}
	return left
}

// Restart gives the request its time anew, for another upstream.
func (t *Time) Restart() { t.Deadline = t.RespondBy(t.RequestTimeout()) }

// appendDeadline appends the deadline that the client sent, if it did, with the time that is left.
func (t *Time) appendDeadline(form wire.Form, headers []byte) []byte {
	if !t.clientDeadline.Given {
		return headers
	}
	return t.clientDeadline.Append(form, headers, t.left(t.Now()))
}

// StartClock starts the deadline of the request, once: when the request was first sent whole, or
// when the first attempt ended before that.
func (t *Time) StartClock(now clock.Instant) {
	if t.sentAt.IsZero() {
		t.clockFrom(now)
	}
}

func (t *Time) clockFrom(now clock.Instant) {
	t.sentAt = now
	if limit := t.RequestTimeout(); limit > 0 {
		t.Deadline = clock.Earliest(t.Deadline, now.Add(limit))
	}
}

// AttemptTimeout returns the route's attempt timeout, 0 for none. A gRPC call has none: the first
// headers of a stream may come late.
func (t *Time) AttemptTimeout() time.Duration {
	if t.of.GRPC {
		return 0
	}
	return t.of.Dest.AttemptTimeout
}

// BodyIdle returns how long a body may pause in either direction, 0 for no limit. A gRPC stream
// may be idle for any time.
func (t *Time) BodyIdle() time.Duration {
	if t.of.GRPC {
		return 0
	}
	return t.of.Dest.BodyIdleTimeout
}

// TimeoutEndKind returns how an attempt that timed out ended. If the client's own deadline ended
// it, the attempt counts as abandoned: clients with short deadlines must not open the breaker of
// an upstream that is as fast as usual for others.
func (t *Time) TimeoutEndKind() breaker.EndKind {
	if w := &t.clientDeadline; w.Given && !t.Now().Before(t.Began.Add(t.of.Dest.OwnShare(w.Timeout))) {
		return breaker.Abandoned
	}
	return breaker.TimedOut
}

// MaxWait returns the longest time that the request may wait before its next attempt.
func (t *Time) MaxWait(now clock.Instant) time.Duration {
	room := min(t.left(now), LongestWait)
	if limit := t.RequestTimeout(); limit > 0 && t.sentAt.IsZero() { // its clock has not started, because the body is not read yet
		room = min(room, t.Began.Add(limit).Sub(now))
	}
	return room
}

// IdleOrForever is like BodyIdle for a wait that needs an end.
func (t *Time) IdleOrForever() time.Duration {
	if idle := t.BodyIdle(); idle > 0 {
		return idle
	}
	return 365 * 24 * time.Hour
}

// IdleEnd returns until when a body may pause that moves now.
func (t *Time) IdleEnd() clock.Instant { return t.Now().Add(t.IdleOrForever()) }

// LongestWait bounds a wait if no request timeout does, so that an upstream cannot block its
// clients with one Retry-After.
const LongestWait = 10 * time.Minute
