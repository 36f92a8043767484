package exchange

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/response"
)

// attempts makes the attempts of a request one by one: it sends the request and reads the
// response.
type attempts struct {
	s      *sender
	r      *request.Request
	report *report.Report
	w      *response.Writer
	hedge  race
	stream heldStream // of the running attempt
}

// begin prepares the attempt, which has its permit, for the n-th send of the request.
func (at *attempts) begin(n int) {
	a := at.s.att
	a.Number, a.Endpoint, a.Addr, a.DialErr = int32(n), nil, "", nil
	a.Began = at.r.Time.Clock // when the request began, or when the wait before this attempt ended
	a.Span = nil
	a.Serve(at.r, &at.r.Body, at.s.options())
	at.stream = heldStream{}
	at.hedge.learns, at.hedge.after = false, 0
	if n > 1 {
		at.r.ContinueClient()
	}
	if at.report.Trace.Request != nil {
		a.Span = at.report.AttemptSpan(a, false)
	}
	if at.r.Dest.Hedge != nil {
		at.hedge.arm()
	}
}

// make sends the request once, waits for the response headers and sets res to the result. After a
// status, the connection stays open and Resp holds the headers. After an attempt timeout, it stays
// open for resume. If fresh is set, make dials a new connection.
func (at *attempts) make(res *policy.Attempt, fresh bool) {
	*res = policy.Attempt{}
	for {
		if res.Cause = at.s.connect(fresh); res.Cause != policy.CauseStatus {
			return
		}
		if !at.r.ClientStaysOn() {
			res.Cause = policy.CauseDial // the client left during the dial: nothing is sent
			return
		}
		switch sent := at.sendRequest(); {
		case sent == attempt.Taken:
			at.receive(res)
			return
		case sent == attempt.NotTaken && at.s.att.Reused:
			at.s.att.Upload().Stop()
			at.s.att.Take().CloseStale()
			res.Cause = policy.CauseIdleClose
			return
		case !at.s.att.Reused: // a connection just dialled: the next dial is another attempt
			at.s.drop()
			res.Cause = policy.CauseDial
			return
		}
		at.s.att.Take().CloseUnsent() // the upstream had closed it: nothing was sent, so take the next one
		at.r.Time.Tick()              // the check may have waited
	}
}

// resume continues an attempt that timed out if no retry is possible. The attempt then has all the
// time that is left.
func (at *attempts) resume(res *policy.Attempt) {
	at.s.lastAttempt, at.hedge.after = true, 0
	at.receive(res)
}

// sendRequest sends the request, or the part of it that has arrived.
func (at *attempts) sendRequest() attempt.SendEnd {
	parts, headers, expect, end, err := at.s.request()
	switch {
	case err != nil:
		at.r.ClientFailed(err) // the body is broken before a byte of it is sent
		return attempt.Taken
	case end && at.s.att.Unchecked && at.s.att.Up.CanSendChecked():
		return at.sendChecked(parts)
	}
	return at.s.att.Upload().Send(parts, headers, expect, end)
}

// sendChecked sends a complete request and waits a short while for the first bytes of the
// response.
func (at *attempts) sendChecked(parts [][]byte) attempt.SendEnd {
	a, now := at.s.att, at.r.Time.Clock
	a.ExtendWrite(now, at.r.Time.BodyIdle())
	a.SentWholeAt(now)
	at.setRead(at.hedge.untilDue(at.readUntil(now, 0, attempt.Sent)), now)
	end, waits := a.SendChecked(parts)
	if waits && !at.hedge.due() { // otherwise receive sends the hedge
		at.s.att.Upload().StartWatch(nil)
	}
	return end
}

// receive waits for the final response headers. It drops the connection unless it gets a status or
// an attempt timeout.
func (at *attempts) receive(a *policy.Attempt) {
	cause := at.s.att.ReadFinalHeaders(at, at.r.Settings.Limits, at.r.HTTP.Method)
	if at.hedge.running != nil {
		at.raceHedge(a, cause)
		return
	}
	at.received(a, cause)
}

// received sets a to the result of the attempt. cause is why reading its headers ended.
func (at *attempts) received(a *policy.Attempt, cause policy.Cause) {
	switch cause {
	case policy.CauseStatus:
		if at.r.IsIdleTimeout408(at.s.att.Response(), at.s.att.Reused) {
			at.s.drop()
			*a = policy.Attempt{Cause: policy.CauseIdleClose}
			return
		}
		if at.s.att.Upload().Running() {
			at.s.att.Upload().AwaitLastWrite()
		}
		at.s.att.ReadBody(at, at.r.Settings.Limits)
		at.r.StatusOf(a, at.s.att.Response())
		at.learnLimits(a)
		switch {
		case at.r.GRPC && !at.peekGRPCStatus(a):
			at.s.drop()
			*a = policy.Attempt{Cause: policy.CauseReset}
		case at.r.Dest.FirstContentTimeout > 0 && at.holdsStream(a):
			at.awaitFirstContent(a)
		}
	default:
		*a = policy.Attempt{Cause: cause}
		if cause != policy.CauseAttemptTimeout && at.r.ClientEnd() == request.ClientPresent { // otherwise resume or abandon needs it
			at.s.drop()
		}
	}
}

// learnLimits reads what the headers of a response say about the rate limits of the route's upstream.
func (at *attempts) learnLimits(a *policy.Attempt) {
	if at.r.Tokens != nil && at.r.Dest == at.r.Route {
		at.r.Tokens.Learn(at.s.att.Response(), a.Status)
	}
}

// raceHedge continues an attempt that has a hedge until one of the two remains. cause is why
// reading the attempt's headers ended. The first good response wins; a failure waits for the other
// attempt. It sets res to the result, like receive. Everything about the client happens here and
// not in the goroutine of the hedge.
func (at *attempts) raceHedge(res *policy.Attempt, cause policy.Cause) {
	if at.hedge.ended {
		if at.hedge.takeOver(res, at) {
			at.holdHedgesStream(res)
			return
		}
		cause = at.s.att.ReadFinalHeaders(at, at.r.Settings.Limits, at.r.HTTP.Method)
	}
	at.received(res, cause)
	if at.r.ClientStaysOn() && !at.r.Good(res) && at.hedge.await(res, at) {
		at.holdHedgesStream(res)
		return
	}
	at.hedge.drop(res)
}

// holdHedgesStream does for a winning hedge what received does at its end.
func (at *attempts) holdHedgesStream(res *policy.Attempt) {
	at.stream = heldStream{}
	if at.holdsStream(res) {
		at.awaitFirstContent(res)
	}
}

// lateResponse is how long to wait for a response after the upstream stopped reading the request.
const lateResponse = time.Second

// Fill implements attempt.Reader with one read. See read.
func (at *attempts) Fill(a *attempt.Attempt, idle time.Duration) error {
	err := at.read(idle)
	if err == io.EOF && idle > 0 && a.Body().UntilClose() && at.resetWhileSplicing() {
		return attempt.ErrCut
	}
	return err
}

// resetWhileSplicing reports whether the connection was reset while the kernel moved the request's
// body. A read may report that reset as an ordinary end. Package rawsocket detects it for all
// other writes. A reset after the upstream's orderly end counts too, because that end may not be
// the response's. An upload in flight is stopped.
func (at *attempts) resetWhileSplicing() bool {
	if at.s.att.Upload().HasBody() {
		at.s.att.Upload().Stop()
	}
	return at.s.att.Spliced && rawsocket.IsTCPClosed(at.s.att.Up.Conn)
}

// AcceptsUpgrade reports whether the 101 names a protocol, was requested, and came after the whole
// request (RFC 9110 section 7.8). After a body that was cut short, the bytes of the new protocol
// would look like the rest of the body.
func (at *attempts) AcceptsUpgrade(a *attempt.Attempt) bool {
	at.s.att.Upload().Stop()
	return at.r.HTTP.Upgrade != nil && a.Response().Upgrade != nil && a.Progress.Load() == attempt.Sent
}

// Inform forwards a 1xx response at once. It forwards a 100 only once and only to a client that
// expects it, and nothing to HTTP/1.0.
func (at *attempts) Inform(a *attempt.Attempt) {
	is100 := a.Response().Status == 100
	if is100 {
		a.NotReusable = at.s.mayGoUnread() // the upstream reads the body that it asked for
	}
	if at.r.HTTP.Minor == 0 || is100 && !at.r.ExpectsContinue() {
		return
	}
	if is100 {
		at.r.Continued()
	}
	if at.w.Inform(a.Response()) != nil {
		at.r.ClientLeft()
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
		if at.r.ClientEnd() != request.ClientPresent {
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
		case at.r.ClientEnd() != request.ClientPresent:
			return attempt.ErrClientGone
		case at.s.att.Progress.Load() == progress && !until.IsZero() && !at.r.Time.Now().Before(until):
			return err
		case whole && at.vanished():
			return attempt.ErrVanished
		case whole && at.hedge.due():
			at.hedge.send()
			continue
		case at.s.att.Upload().UpstreamVanished():
			return attempt.ErrVanished
		case at.s.att.Upload().LeftWhileStuck():
			at.r.ClientLeft()
			return attempt.ErrClientGone
		}
		at.s.att.Upload().StartWatch(nil)
	}
}

// untilAckCheck returns until, or the time of the next check for an acknowledgement if that is
// sooner.
func (at *attempts) untilAckCheck(until, now clock.Instant) clock.Instant {
	checks := max(now.Sub(at.s.att.SentAt), 0) / rawsocket.AckWithin
	return request.Earliest(until, at.s.att.SentAt.Add((checks+1)*rawsocket.AckWithin))
}

// vanished reports whether the upstream's system does not acknowledge a request that was sent whole.
func (at *attempts) vanished() bool {
	return at.r.Time.Now().Sub(at.s.att.SentAt) >= rawsocket.AckWithin && at.s.att.Up.Unacknowledged()
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
		from := at.s.att.SentAt
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
	if !at.s.att.Upload().Running() || at.s.att.Upload().HasBody() {
		soon := now.Add(downstream.PollEvery)
		if until.IsZero() || soon.Before(until) {
			until = soon
			if d := soon.Sub(at.s.att.ReadBy); !at.s.att.Upload().Running() && at.hedge.running == nil && d >= 0 && d < downstream.PollEvery/2 {
				return
			}
		}
	}
	at.s.att.ReadBy = until
	_ = at.s.att.Up.SetReadDeadline(at.r.Process.Clock.At(until))
}
