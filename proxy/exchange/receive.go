package exchange

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// lateResponse is how long to wait for a response after the upstream stopped reading the request.
const lateResponse = time.Second

// Fill implements attempt.Reader with one read. See read.
func (at *attempts) Fill(a *attempt.Attempt, idle time.Duration) error {
	err := at.read(idle)
	if err == io.EOF && idle > 0 && a.Body.UntilClose() && at.resetWhileSplicing() {
		return attempt.ErrCut
	}
	return err
}

// resetWhileSplicing reports whether the connection was reset while the kernel moved the request's
// body. A read may report that reset as an ordinary end. Package rawsocket detects it for all
// other writes. A reset after the upstream's orderly end counts too, because that end may not be
// the response's. An upload in flight is stopped.
func (at *attempts) resetWhileSplicing() bool {
	if at.s.upload.HasBody() {
		at.s.upload.Stop()
	}
	return at.s.att.Spliced && rawsocket.IsTCPClosed(at.s.att.Up.Conn)
}

// AcceptsUpgrade reports whether the 101 names a protocol, was requested, and came after the whole
// request (RFC 9110 section 7.8). After a body that was cut short, the bytes of the new protocol
// would look like the rest of the body.
func (at *attempts) AcceptsUpgrade(a *attempt.Attempt) bool {
	at.s.upload.Stop()
	return at.r.HTTP.Upgrade != nil && a.Resp.Upgrade != nil && a.Progress.Load() == attempt.Sent
}

// Inform forwards a 1xx response at once. It forwards a 100 only once and only to a client that
// expects it, and nothing to HTTP/1.0.
func (at *attempts) Inform(a *attempt.Attempt) {
	if a.Resp.Status == 100 {
		a.NotReusable = at.s.mayGoUnread() // the upstream reads the body that it asked for
	}
	if at.r.HTTP.Minor == 0 || a.Resp.Status == 100 && !at.r.ExpectsContinue {
		return
	}
	if a.Resp.Status == 100 {
		at.r.ExpectsContinue = false
	}
	if at.w.Inform(&a.Resp) != nil {
		at.r.ClientEnd.Store(request.ClientGone)
	}
}

// read reads once from the upstream into its buffer. If idle is 0, headers are awaited and the
// deadlines of attempt and request bound the read. Otherwise the body may pause for idle. It
// returns early if the client's side ended.
func (at *attempts) read(idle time.Duration) error {
	began := at.r.Time.Tick()
	for now := began; ; now = at.r.Time.Tick() {
		progress := at.s.att.Progress.Load()
		if progress == attempt.Sent {
			at.s.admit.NoteSent(at.s.att)
		}
		until := at.readUntil(began, idle, progress)
		whole := idle == 0 && progress == attempt.Sent
		wake := until
		if whole {
			wake = at.untilAckCheck(at.hedge.untilDue(until), now)
		}
		at.setRead(wake, now)
		if at.r.ClientEnd.Load() != request.ClientPresent {
			return attempt.ErrClientGone
		}
		if whole && at.hedge.overtook() {
			return errHedgeEnded
		}
		if at.s.att.Progress.Load() != progress {
			continue
		}
		err := at.s.att.Read()
		switch {
		case err == nil:
			at.r.Time.Tick()
			return nil
		case !rawsocket.IsTimeout(err):
			return err
		case at.r.ClientEnd.Load() != request.ClientPresent:
			return attempt.ErrClientGone
		case at.s.att.Progress.Load() == progress && !until.IsZero() && !at.r.Time.Now().Before(until):
			return err
		case whole && at.vanished():
			return attempt.ErrVanished
		case whole && at.hedge.due():
			at.hedge.send()
			continue
		case at.s.upload.LeftWhileStuck():
			at.r.ClientEnd.Store(request.ClientGone)
			return attempt.ErrClientGone
		}
		at.s.upload.StartWatch(nil)
	}
}

// AckWithin is how long after a request the proxy looks for its acknowledgement. Keep-alive probes
// detect a peer that vanishes later, but they do not run before the request is acknowledged.
const AckWithin = 5 * time.Second

// untilAckCheck returns until, or the time of the next check for an acknowledgement if that is
// sooner.
func (at *attempts) untilAckCheck(until, now clock.Instant) clock.Instant {
	checks := max(now.Sub(at.s.att.SentAt), 0) / AckWithin
	return request.Earliest(until, at.s.att.SentAt.Add((checks+1)*AckWithin))
}

// vanished reports whether the upstream's system does not acknowledge the request.
func (at *attempts) vanished() bool {
	return at.r.Time.Now().Sub(at.s.att.SentAt) >= AckWithin && at.s.att.Up.Unacknowledged()
}

// readUntil returns when waiting for the upstream ends; zero means never.
func (at *attempts) readUntil(began clock.Instant, idle time.Duration, progress int32) clock.Instant {
	switch {
	case idle > 0:
		return began.Add(idle)
	case progress == attempt.WriteFailed:
		return began.Add(lateResponse)
	case progress == attempt.Sending:
		return at.r.Time.ClientLeavesAt // otherwise the upload is bounded by its rate
	}
	at.r.Time.StartClock(at.s.att.SentAt)
	until := at.r.Time.Deadline
	if t := at.r.Time.AttemptTimeout(); t > 0 && !at.s.lastAttempt {
		from := at.s.att.SentAt.Add(-at.s.att.Fault.Taken)
		if r := at.hedge.running; r != nil {
			from = r.Att.Began // both attempts get the time of the later one
		}
		if end := from.Add(t); until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return until
}

// setRead sets the read deadline of the upstream connection to until, or sooner while the client
// is not watched. A deadline that is close enough stays, unless the pump or a hedge may have moved
// it.
func (at *attempts) setRead(until, now clock.Instant) {
	if !at.s.upload.Pump.Running || at.s.upload.HasBody() {
		soon := now.Add(downstream.PollEvery)
		if until.IsZero() || soon.Before(until) {
			until = soon
			if d := soon.Sub(at.s.att.ReadBy); !at.s.upload.Pump.Running && at.hedge.running == nil && d >= 0 && d < downstream.PollEvery/2 {
				return
			}
		}
	}
	at.s.att.ReadBy = until
	_ = at.s.att.Up.SetReadDeadline(at.r.Process.Clock.At(until))
}
