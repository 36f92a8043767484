package proxy

import (
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// freshFor bounds the idle age of a pooled connection for a request that could not be
// retried. Servers close idle connections after 2 s at the earliest (Node.js 5 s,
// Gunicorn 2 s), and that close may be on its way.
const freshFor = 1500 * time.Millisecond

// attempt sends the request once, waits for the headers of the response, and sets a to the
// result. After a status the connection stays open and x.resp has the headers. After an
// attempt timeout it stays open for resume. fresh asks for a newly dialled connection.
func (x *exchange) attempt(a *policy.Attempt, fresh bool) {
	x.endpoint = nil
	x.attempts++
	x.attemptBegan = x.clock // the request's begin, or the end of a wait before the attempt
	if x.attempts > 1 {
		x.continueClient()
	}
	x.fault, x.hedge.learns, x.hedge.after = attemptFault{}, false, 0
	if x.trace.request != nil {
		x.trace.attempt = x.traceAttempt(x.attemptBegan, false)
	}
	if x.route.hedge != nil {
		x.armHedge()
	}
	if x.route.FaultInjection != nil {
		x.makeFault()
	}
	x.runAttempt(a, fresh)
}

// runAttempt connects, sends and receives.
func (x *exchange) runAttempt(a *policy.Attempt, fresh bool) {
	*a = policy.Attempt{}
	if x.fault.stalled {
		if a.Cause = x.stall(); a.Cause != policy.CauseStatus {
			return
		}
	}
	for {
		if a.Cause = x.connect(fresh); a.Cause != policy.CauseStatus {
			return
		}
		if x.clientEnd.Load() != clientPresent {
			a.Cause = policy.CauseDial // it left during the dial: nothing is sent
			return
		}
		switch sent := x.send(); {
		case sent == taken:
			x.receive(a)
			return
		case sent == notTaken || !x.upReused: // dialled just now: the next dial is another attempt
			a.Cause = x.failUnsent()
			return
		}
		x.dropStale() // and take the next one: nothing was tried on it
	}
}

// dropStale closes a pooled connection that was found closed before anything was written.
func (x *exchange) dropStale() {
	up := x.up
	x.giveUpBuffer()
	x.up = nil
	up.CloseUnsent()
	x.tick() // its end may have come in place of the response
}

// resume continues an attempt that timed out when no retry is possible. It then has all
// the time that is left.
func (x *exchange) resume(a *policy.Attempt) {
	x.lastAttempt, x.hedge.after = true, 0
	if x.fault.stalled {
		x.runAttempt(a, false)
		return
	}
	x.receive(a)
}

// mayResume reports whether an attempt that timed out may still be awaited.
func (x *exchange) mayResume() bool {
	return (x.up != nil || x.fault.stalled) && (x.deadline.IsZero() || x.now().Before(x.deadline))
}

// failUnsent closes a connection that took no byte of the request and returns the cause.
// From a pooled connection the pool learns how long the upstream keeps idle ones.
func (x *exchange) failUnsent() policy.Cause {
	up := x.up
	if !x.upReused {
		x.dropUpstream()
		return policy.CauseDial
	}
	x.stopPump()
	x.giveUpBuffer()
	x.up = nil
	up.CloseStale()
	return policy.CauseIdleClose
}

// connect gets a connection: a pooled one at once, otherwise a dialled one while the client
// is watched. CauseStatus means that x.up is ready.
func (x *exchange) connect(fresh bool) policy.Cause {
	pool := x.route.upstream.pool
	x.unchecked = x.requestIsBuffered()
	if x.fault.Breaks() {
		x.use(standIn(pool, x.fault.Fault))
		return policy.CauseStatus
	}
	repeats := x.retriesReset()
	o := upstream.GetOptions{Fresh: fresh, ForceLookup: fresh, Avoid: x.avoid, Endpoint: pool.Choose(x.avoid), Unchecked: x.unchecked, HTTP1: x.req.Upgrade != nil}
	if !repeats {
		o.MaxIdle = freshFor
	}
	if x.attempts == 1 {
		o.Now = time.Duration(x.clock)
	}
	up, err := x.connection(&o, fresh)
	if err != nil {
		return x.dialFailed(err)
	}
	x.use(up)
	if permit := x.waiter.permit; permit.Probe() && !up.Reused {
		x.route.upstream.door.watchProbe(permit, up.Addr)
	}
	return policy.CauseStatus
}

// retriesReset reports whether the attempt will be retried, as far as is known now, if its
// connection ends without a response.
func (x *exchange) retriesReset() bool {
	return x.safe && x.body.keeping && x.retries < x.maxRetries && x.route.repeatsReset
}

func (x *exchange) use(up *upstream.Conn) {
	x.up, x.upReused, x.endpoint = up, up.Reused, up.Endpoint
	x.rateLimitSlot = nil // it is used
	x.trace.connected(up)
	x.avoid, x.dialErr = up.Addr, nil // the next attempt, if there is one, prefers another address
	x.upGotBytes = false
	x.upUntil, x.upWrite = instant(up.ReadBy), instant(up.WriteBy)
	x.upR, x.upW, x.earlyErr = 0, 0, nil
	x.resp.Restart()
	x.progress.Store(sending)
	if x.lastPiece.Load() { // a look costs less than to write
		x.lastPiece.Store(false)
	}
}

func (x *exchange) dialFailed(err error) policy.Cause {
	x.dialErr, x.endpoint = nil, nil
	if x.noAttemptReason == policy.ReasonNone {
		x.rateLimitSlot = nil
	}
	if errors.As(err, &x.dialErr) {
		x.avoid = x.dialErr.Addr
		x.trace.peer = x.dialErr.Addr
		if x.dialErr.Kind == upstream.KindTLS {
			return policy.CauseTLS
		}
	}
	return policy.CauseDial
}

// attemptDone reports the attempt to the observer, the log and the trace.
func (x *exchange) attemptDone(a *policy.Attempt, class policy.Class) {
	now := x.clock
	if x.firstEnd.IsZero() {
		x.firstEnd = now
	}
	if x.hedge.learns {
		x.learnLatency(a, class)
	}
	x.lastEnd, x.cause = now, a.Cause
	code := 0
	if a.Cause == policy.CauseStatus {
		code = a.Status
	}
	if x.throttlerAsked {
		x.reportToThrottler(a)
	}
	x.exposed = x.exposed || class.Exposes()
	x.failed = x.failed || class != policy.ClassNone && class != policy.Overtaken
	took := now.Sub(x.attemptBegan)
	x.attemptBegan = 0
	x.observer.AttemptDone(class, code, took)
	x.attemptLog.attempted(step{
		began: inMicros(now.Sub(x.began) - took), took: inMicros(took), status: int16(code), cause: a.Cause, class: class,
		addr: x.avoid, dial: x.dialErrOf(a), // avoid is where it went
	})
	if x.trace.attempt != nil {
		x.attemptTraced(x.trace.attempt, a, class, x.trace.peer)
	}
}

// dialErrOf returns why an attempt got no connection, or nil if it got one.
func (x *exchange) dialErrOf(a *policy.Attempt) *upstream.DialError {
	if a.Cause == policy.CauseDial || a.Cause == policy.CauseTLS {
		return x.dialErr
	}
	return nil
}

func (x *exchange) attemptOpen() bool { return !x.attemptBegan.IsZero() }

// discard drops the connection of an attempt that will be retried.
func (x *exchange) discard() {
	x.dropUpstream()
	x.stopPump()
}

// dropUpstream resets the connection of an unfinished attempt, so that a server that works
// on it notices at once.
func (x *exchange) dropUpstream() {
	up := x.up
	if up == nil {
		return
	}
	if x.pumping {
		x.stop.Store(true) // before its write's time is over, which is no failure then
	}
	_ = up.SetDeadline(past)
	x.stopPump()
	x.giveUpBuffer()
	x.up = nil
	up.Abort()
}

// releaseUpstream returns a connection to the pool after its response was read to the end.
func (x *exchange) releaseUpstream(now instant) {
	up := x.up
	reusable := x.progress.Load() == sent && !x.upNotReusable && !x.upRespondedEarly && !x.resp.Close && x.upR == x.upW && !x.respBody.untilClose()
	x.giveUpBuffer()
	x.up = nil
	if !reusable {
		closeWithoutWaiting(up)
		return
	}
	up.ReadBy, up.WriteBy = time.Duration(x.upUntil), time.Duration(x.upWrite)
	up.ReleaseAt(time.Duration(now), x.resp.KeepAliveTimeout)
}

// closeWithoutWaiting closes a connection whose response was read whole. TLS is cut off,
// because its close_notify might wait for a peer that does not read.
func closeWithoutWaiting(up *upstream.Conn) {
	if up.Raw() == nil {
		up.Abort()
		return
	}
	_ = up.Close()
}

// writeUp sends the parts in one write if the system can. It shortens them to what was not
// taken.
func (x *exchange) writeUp(parts [][]byte) (int, error) {
	x.extendUpWrite(x.now())
	return x.up.Writev(parts)
}

// extendUpWrite keeps the write deadline of the upstream connection between one and two body
// idle timeouts away. The deadline may stem from an earlier request of another route.
func (x *exchange) extendUpWrite(now instant) {
	idle := x.bodyIdle()
	left := x.upWrite.Sub(now)
	switch {
	case idle <= 0 && x.upWrite.IsZero() || idle > 0 && left >= idle && left <= 2*idle:
		return
	case idle <= 0:
		x.upWrite = 0
	default:
		x.upWrite = now.Add(2 * idle)
	}
	_ = x.up.SetWriteDeadline(x.c.server.at(x.upWrite))
}
