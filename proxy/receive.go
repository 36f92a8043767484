package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

const (
	// watchAfter is how long an upstream is awaited before a second goroutine watches whether
	// the client is still there.
	watchAfter = pollEvery
	// stuckAfter is how long an upstream may take no byte of a body before the upload counts as
	// stuck. On loopback its system confirms up to 64 KiB at once, and only after the
	// application has read them.
	stuckAfter = time.Second
	// lateAnswer is how long a response is awaited after the upstream stopped taking the request.
	lateAnswer = time.Second
	// maxInformational bounds the 1xx responses before one final response.
	maxInformational = 64
)

// receive waits for the final response headers. On anything but a status and an attempt
// timeout it drops the connection.
func (x *exchange) receive(a *policy.Attempt) {
	if x.up.Buf == nil {
		x.up.Buf = x.spareBuffers.get(mediumBuffer)
	}
	cause := x.readFinalHead()
	if x.hedge.attempt != nil {
		x.raceHedge(a, cause)
		return
	}
	x.received(a, cause)
}

// received sets a to the result of the attempt, after reading its headers ended with cause.
func (x *exchange) received(a *policy.Attempt, cause policy.Cause) {
	switch cause {
	case policy.CauseStatus:
		if x.isIdleTimeout408(&x.resp, x.upReused) {
			x.dropUpstream()
			*a = policy.Attempt{Cause: policy.CauseIdleClose}
			return
		}
		if x.pumping {
			x.awaitLastWrite()
		}
		x.respBody.reset()
		x.statusOf(a, &x.resp)
		if x.grpc && !x.peekGRPCStatus(a) {
			x.dropUpstream()
			*a = policy.Attempt{Cause: policy.CauseReset}
		}
	default:
		*a = policy.Attempt{Cause: cause}
		if cause != policy.CauseAttemptTimeout && x.clientEnd.Load() == clientPresent { // else resume or abandon has a use for it
			x.dropUpstream()
		}
	}
}

// readFinalHead reads response headers until x.resp has final ones. It forwards informational
// responses as they arrive.
func (x *exchange) readFinalHead() policy.Cause {
	for range maxInformational {
		if cause := x.readHead(); cause != policy.CauseStatus {
			return cause
		}
		switch status := x.resp.Status; {
		case status == 101 && !x.upgradeAgreed():
			return policy.CauseMalformed
		case status >= 200 || status == 101:
			return policy.CauseStatus
		case status == 100:
			x.upNotReusable = x.mayGoUnread() // it reads the body that it was asked about
		}
		x.forwardInformational()
	}
	return policy.CauseMalformed
}

// upgradeAgreed reports whether the 101 names a protocol, was requested, and came after the
// whole request (RFC 9110 section 7.8). What follows a body that was cut short could not be
// told from the body.
func (x *exchange) upgradeAgreed() bool {
	x.stopPump()
	return x.req.Upgrade != nil && x.resp.Upgrade != nil && x.progress.Load() == sent
}

// readHead reads the headers of one response into x.resp.
func (x *exchange) readHead() policy.Cause {
	up := x.up
	for {
		if x.upR < x.upW {
			n, err := x.resp.Parse(up.Buf[x.upR:x.upW], x.set.Limits, x.req.Method)
			if err != nil {
				return policy.CauseMalformed
			}
			if n > 0 {
				x.headerStart, x.headerEnd = int32(x.upR), int32(x.upR+n)
				x.upR += n
				return policy.CauseStatus
			}
		}
		if err := x.earlyErr; err != nil {
			x.earlyErr = nil
			return x.readCause(err)
		}
		x.makeUpRoom()
		if err := x.readUp(0); err != nil {
			return x.readCause(err)
		}
	}
}

// makeUpRoom makes room for more headers in the buffer of the upstream connection.
func (x *exchange) makeUpRoom() {
	up := x.up
	if x.upW < len(up.Buf) {
		return
	}
	if x.upR == 0 {
		x.growUp()
		return
	}
	x.upW = copy(up.Buf, up.Buf[x.upR:x.upW])
	x.upR = 0
}

func (x *exchange) readCause(err error) policy.Cause {
	if x.progress.Load() == writeFailed && isTimeout(err) {
		return policy.CauseReset
	}
	return causeOf(err, x.upReused)
}

// causeOf returns what an error of reading headers means.
func causeOf(err error, reused bool) policy.Cause {
	switch {
	case isTimeout(err):
		return policy.CauseAttemptTimeout
	case errors.Is(err, upstream.ErrRefused), errors.Is(err, upstream.ErrUnprocessed) && !reused:
		return policy.CauseRefusedStream
	case errors.Is(err, upstream.ErrUnprocessed):
		return policy.CauseIdleClose
	}
	return policy.CauseReset
}

// readUp reads once from the upstream into its buffer. While headers are awaited (idle 0), the
// deadlines of attempt and request bound it; a body may pause for idle. It returns early if
// the client's side ended.
func (x *exchange) readUp(idle time.Duration) error {
	began := x.tick()
	for now := began; ; now = x.tick() {
		progress := x.progress.Load()
		if progress == sent {
			x.noteSent()
		}
		until := x.readUntil(began, idle, progress)
		whole := idle == 0 && progress == sent
		wake := until
		if whole {
			wake = x.untilHedge(until)
		}
		x.setUpRead(wake, now)
		if x.clientEnd.Load() != clientPresent {
			return errClientGone
		}
		if whole && x.overtaken() {
			return errHedgeEnded
		}
		if x.progress.Load() != progress {
			continue
		}
		n, err := x.up.Read(x.up.Buf[x.upW:])
		x.upW += n
		switch {
		case n > 0:
			x.tick()
			return nil
		case err == nil:
			return io.ErrNoProgress
		case !isTimeout(err):
			return err
		case x.clientEnd.Load() != clientPresent:
			return errClientGone
		case x.progress.Load() == progress && !until.IsZero() && !x.now().Before(until):
			return err
		case whole && x.hedgeDue():
			x.sendHedge()
			continue
		case x.leftWhileStuck():
			x.clientEnd.Store(clientGone)
			return errClientGone
		}
		x.startWatch(nil)
	}
}

// leftWhileStuck reports whether the client has left while the upstream takes nothing of its
// body. The pump is stuck in a write and cannot see that.
func (x *exchange) leftWhileStuck() bool {
	if !x.uploading() {
		return false
	}
	now := x.now()
	if n := uint64(x.pieces.Load()) + x.up.Acked(); n != x.takenSeen {
		x.takenSeen, x.takenAt = n, now
		return false
	}
	return now.Sub(x.takenAt) >= stuckAfter && x.c.hungUp()
}

// readUntil returns when waiting for the upstream ends; zero means never.
func (x *exchange) readUntil(began instant, idle time.Duration, progress int32) instant {
	switch {
	case idle > 0:
		return began.Add(idle)
	case progress == writeFailed:
		return began.Add(lateAnswer)
	case progress == sending:
		return x.clientLeavesAt // else the upload is bounded by its rate
	}
	x.startClock(x.attemptSent)
	until := x.deadline
	if t := x.attemptTimeout(); t > 0 && !x.lastAttempt {
		from := x.attemptSent.Add(-x.fault.taken)
		if r := x.hedge.attempt; r != nil {
			from = r.began // both have the time of the later one
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
func (x *exchange) setUpRead(until, now instant) {
	if !x.pumping || x.uploading() {
		soon := now.Add(watchAfter)
		if until.IsZero() || soon.Before(until) {
			until = soon
			if d := soon.Sub(x.upUntil); !x.pumping && x.hedge.attempt == nil && d >= 0 && d < watchAfter/2 {
				return
			}
		}
	}
	x.upUntil = until
	_ = x.up.SetReadDeadline(x.c.server.at(until))
}

// forwardInformational forwards 1xx responses at once: a 100 only once and only to a client
// that asked for it, none to HTTP/1.0.
func (x *exchange) forwardInformational() {
	if x.req.Minor == 0 {
		return
	}
	if x.resp.Status == 100 {
		if !x.expectsContinue {
			return
		}
		x.expectsContinue = false
	}
	x.out = forward.AppendInformational(x.cleanOut(), &x.resp)
	if x.c.write(x.out, x.now()) != nil {
		x.clientEnd.Store(clientGone)
	}
}

// cleanOut returns the empty scratch buffer for what is written to the client.
func (x *exchange) cleanOut() []byte {
	if x.out == nil {
		x.out = x.spareBuffers.get(smallBuffer)
	}
	return x.out[:0]
}

// isIdleTimeout408 reports whether r is a 408 for the idle connection that crossed our request
// on its way. A request that may run twice can be retried (RFC 9110 section 15.5.9).
func (x *exchange) isIdleTimeout408(r *http1.Response, reused bool) bool {
	return r.Status == 408 && r.Close && reused && x.safe
}

// isPlainSuccess reports whether the status alone shows that the response is no failure, as for
// nearly all responses.
func (x *exchange) isPlainSuccess(a *policy.Attempt) bool {
	return a.Cause == policy.CauseStatus && a.Status < 300 && x.route.plainRetryOn
}

// statusOf sets a to what the policy needs to know about a response.
func (x *exchange) statusOf(a *policy.Attempt, r *http1.Response) {
	*a = policy.Attempt{Cause: policy.CauseStatus, Status: r.Status}
	if x.isPlainSuccess(a) {
		return
	}
	a.Header = r
	a.Final = r.Get(http1.XRetryproxyReason) != nil
	if v := r.Get(http1.RetryAfter); v != nil {
		a.RetryAfter, a.HasRetryAfter = policy.ParseRetryAfter(v, r.Get(http1.Date), time.Now())
	}
	if !a.HasRetryAfter && (a.Status == 429 || a.Status == 503) {
		a.RetryAfter, a.HasRetryAfter = rateLimitWait(r)
	}
}

// rateLimitWait returns the time until a rate limit is renewed that the response says is
// exhausted.
func rateLimitWait(r *http1.Response) (time.Duration, bool) {
	var q policy.RateLimitHeaders
	for i := range r.Headers {
		q.Add(r.Headers[i].Name, r.Headers[i].Value)
	}
	return q.Wait(r.Get(http1.Date), time.Now())
}
