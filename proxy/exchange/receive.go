package exchange

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

const (
	// watchAfter is how long an upstream is awaited before a second goroutine watches whether
	// the client is still there.
	WatchAfter = pollEvery
	// stuckAfter is how long an upstream may take no byte of a body before the upload counts as
	// stuck. On loopback its system confirms up to 64 KiB at once, and only after the
	// application has read them.
	stuckAfter = time.Second
	// lateAnswer is how long a response is awaited after the upstream stopped taking the request.
	lateAnswer = time.Second
)

// receive waits for the final response headers. On anything but a status and an attempt
// timeout it drops the connection.
func (x *Exchange) receive(a *policy.Attempt) {
	cause := x.att.ReadFinalHeaders(x, x.Settings.Limits, x.HTTP.Method)
	if x.hedge.running != nil {
		x.raceHedge(a, cause)
		return
	}
	x.received(a, cause)
}

// received sets a to the result of the attempt, after reading its headers ended with cause.
func (x *Exchange) received(a *policy.Attempt, cause policy.Cause) {
	switch cause {
	case policy.CauseStatus:
		if x.IsIdleTimeout408(&x.att.Resp, x.att.Reused) {
			x.dropUpstream()
			*a = policy.Attempt{Cause: policy.CauseIdleClose}
			return
		}
		if x.upload.Running {
			x.upload.awaitLastWrite()
		}
		x.att.Body.Reset(x.att, x)
		x.StatusOf(a, &x.att.Resp)
		switch {
		case x.GRPC && !x.peekGRPCStatus(a):
			x.dropUpstream()
			*a = policy.Attempt{Cause: policy.CauseReset}
		case x.holdsStream(a):
			x.awaitFirstContent(a)
		}
	default:
		*a = policy.Attempt{Cause: cause}
		if cause != policy.CauseAttemptTimeout && x.ClientEnd.Load() == request.ClientPresent { // else resume or abandon has a use for it
			x.dropUpstream()
		}
	}
}

// Fill reads once from the upstream: see readUp. fill, acceptsUpgrade and inform make the exchange
// the responseReader of its running attempt.
func (x *Exchange) Fill(a *attempt.Attempt, idle time.Duration) error {
	err := x.readUp(idle)
	if err == io.EOF && idle > 0 && a.Body.UntilClose() && x.resetWhileSplicing() {
		return attempt.ErrCut
	}
	return err
}

// resetWhileSplicing says whether the connection was reset while the kernel moved the
// request's body, which a read may tell as a mere end; package sock knows of all other
// writes. A reset that follows the upstream's orderly end counts too: whether that end
// was the response's, nobody can say then. An upload still in flight is given up.
func (x *Exchange) resetWhileSplicing() bool {
	if x.upload.hasBody() {
		x.upload.stop()
	}
	return x.att.Spliced && rawsocket.IsTCPClosed(x.att.Up.Conn)
}

// AcceptsUpgrade reports whether the 101 names a protocol, was requested, and came after the
// whole request (RFC 9110 section 7.8). What follows a body that was cut short could not be
// told from the body.
func (x *Exchange) AcceptsUpgrade(a *attempt.Attempt) bool {
	x.upload.stop()
	return x.HTTP.Upgrade != nil && a.Resp.Upgrade != nil && a.Progress.Load() == attempt.Sent
}

// Inform forwards a 1xx response at once: a 100 only once and only to a client that asked for
// it, none to HTTP/1.0.
func (x *Exchange) Inform(a *attempt.Attempt) {
	if a.Resp.Status == 100 {
		a.NotReusable = x.mayGoUnread() // the upstream reads the body that it was asked about
	}
	if x.HTTP.Minor == 0 || a.Resp.Status == 100 && !x.ExpectsContinue {
		return
	}
	if a.Resp.Status == 100 {
		x.ExpectsContinue = false
	}
	x.w.buf = forward.AppendInformational(x.w.clean(), &a.Resp, x.Route.ResponseChanges)
	if x.Conn.Write(x.w.buf, x.Now()) != nil {
		x.ClientEnd.Store(request.ClientGone)
	}
}

// readUp reads once from the upstream into its buffer. While headers are awaited (idle 0), the
// deadlines of attempt and request bound it; a body may pause for idle. It returns early if
// the client's side ended.
func (x *Exchange) readUp(idle time.Duration) error {
	began := x.Tick()
	for now := began; ; now = x.Tick() {
		progress := x.att.Progress.Load()
		if progress == attempt.Sent {
			x.adm.noteSent()
		}
		until := x.readUntil(began, idle, progress)
		whole := idle == 0 && progress == attempt.Sent
		wake := until
		if whole {
			wake = x.untilAckCheck(x.hedge.untilDue(until), now)
		}
		x.setUpRead(wake, now)
		if x.ClientEnd.Load() != request.ClientPresent {
			return attempt.ErrClientGone
		}
		if whole && x.hedge.overtook() {
			return errHedgeEnded
		}
		if x.att.Progress.Load() != progress {
			continue
		}
		err := x.att.Read()
		switch {
		case err == nil:
			x.Tick()
			return nil
		case !rawsocket.IsTimeout(err):
			return err
		case x.ClientEnd.Load() != request.ClientPresent:
			return attempt.ErrClientGone
		case x.att.Progress.Load() == progress && !until.IsZero() && !x.Now().Before(until):
			return err
		case whole && x.vanished():
			return attempt.ErrVanished
		case whole && x.hedge.due():
			x.sendHedge()
			continue
		case x.upload.leftWhileStuck():
			x.ClientEnd.Store(request.ClientGone)
			return attempt.ErrClientGone
		}
		x.upload.startWatch(nil)
	}
}

// ackWithin is how long after a request its acknowledgement is looked for, again and again.
// Keep-alive probes find a peer that vanished later; they do not run before the request is acknowledged.
const AckWithin = 5 * time.Second

// untilAckCheck returns until, or the next check for an acknowledgement of the request if that is sooner.
func (x *Exchange) untilAckCheck(until, now clock.Instant) clock.Instant {
	checks := max(now.Sub(x.att.SentAt), 0) / AckWithin
	return request.Earliest(until, x.att.SentAt.Add((checks+1)*AckWithin))
}

// vanished reports whether the upstream's system does not even acknowledge the request.
func (x *Exchange) vanished() bool {
	return x.Now().Sub(x.att.SentAt) >= AckWithin && x.att.Up.Unacknowledged()
}

// leftWhileStuck reports whether the client has left while the upstream takes nothing of its
// body. The pump is stuck in a write and cannot see that.
func (u *upload) leftWhileStuck() bool {
	if !u.hasBody() {
		return false
	}
	now := u.r.Now()
	if n := uint64(u.pieces.Load()) + u.att.Up.Acked(); n != u.takenSeen {
		u.takenSeen, u.takenAt = n, now
		return false
	}
	return now.Sub(u.takenAt) >= stuckAfter && u.r.Conn.HungUp()
}

// readUntil returns when waiting for the upstream ends; zero means never.
func (x *Exchange) readUntil(began clock.Instant, idle time.Duration, progress int32) clock.Instant {
	switch {
	case idle > 0:
		return began.Add(idle)
	case progress == attempt.WriteFailed:
		return began.Add(lateAnswer)
	case progress == attempt.Sending:
		return x.ClientLeavesAt // else the upload is bounded by its rate
	}
	x.StartClock(x.att.SentAt)
	until := x.Deadline
	if t := x.AttemptTimeout(); t > 0 && !x.lastAttempt {
		from := x.att.SentAt.Add(-x.att.Fault.Taken)
		if r := x.hedge.running; r != nil {
			from = r.att.Began // both have the time of the later one
		}
		if end := from.Add(t); until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return until
}

// setUpRead sets the read deadline of the upstream connection to until, or sooner while nobody
// watches the client. A deadline that is close enough stays, unless the pump or a hedge may
// have moved it.
func (x *Exchange) setUpRead(until, now clock.Instant) {
	if !x.upload.Running || x.upload.hasBody() {
		soon := now.Add(WatchAfter)
		if until.IsZero() || soon.Before(until) {
			until = soon
			if d := soon.Sub(x.att.ReadBy); !x.upload.Running && x.hedge.running == nil && d >= 0 && d < WatchAfter/2 {
				return
			}
		}
	}
	x.att.ReadBy = until
	_ = x.att.Up.SetReadDeadline(x.Process.Clock.At(until))
}
