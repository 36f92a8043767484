package proxy

import (
	"errors"

	"github.com/retryproxy/retryproxy/policy"
)

// errHedgeEnded ends reading from the first attempt if its hedge has ended.
var errHedgeEnded = errors.New("the hedge ended first")

// overtaken says whether the rival ended and was not dealt with yet.
func (x *exchange) overtaken() bool {
	r := x.hedge.attempt
	if r == nil || x.hedge.ended || !r.isOver.Load() {
		return false
	}
	x.hedge.ended = true
	return true
}

// raceHedge continues an attempt that has a hedge, after reading its headers ended with cause,
// until one of the two remains. The first good response wins; a failure waits for the other. It
// sets a to the result, like receive. Whatever concerns the client happens here and not in the
// goroutine of the hedge.
func (x *exchange) raceHedge(a *policy.Attempt, cause policy.Cause) {
	r := x.hedge.attempt
	if x.hedge.ended {
		x.hedgeEnded(r)
		if x.good(&r.result) {
			x.switchToHedge(a, r)
			return
		}
		x.releaseHedgePermit(r, policy.TimedOut) // its response, if it has one, stays in it
		cause = x.readFinalHead()
	}
	x.received(a, cause)
	if x.clientStaysOn() && !x.good(a) {
		if x.awaitHedge(r, a) {
			x.adoptHedge(a, r, x.route.Policy.Classify(a))
			return
		}
		if !x.clientStaysOn() && a.Cause != policy.CauseAttemptTimeout {
			x.attemptDone(a, x.route.Policy.Classify(a)) // nothing is in flight any more
		}
	}
	x.dropHedge(r)
}

func (x *exchange) clientStaysOn() bool { return x.clientEnd.Load() == clientPresent }

// good reports whether a is a response to relay.
func (x *exchange) good(a *policy.Attempt) bool {
	return a.Cause == policy.CauseStatus && !x.route.Policy.Fails(a)
}

// awaitHedge waits for the hedge after the first attempt failed with a. It reports whether to
// continue with the hedge. If the client leaves meanwhile, the hedge is the one in flight.
func (x *exchange) awaitHedge(r *hedgeAttempt, a *policy.Attempt) bool {
	x.tick()
	if a.Cause != policy.CauseAttemptTimeout { // else it may still be gone on with
		x.releasePermit(a)
	}
	if !r.isOver.Load() {
		x.stopPump()
		x.startWatch(r.stop)
		<-r.done
		x.stopPump()
	}
	x.hedgeEnded(r)
	x.tick()
	if !x.clientStaysOn() {
		return r.up != nil
	}
	return r.up != nil && (x.good(&r.result) || policy.BetterFailure(a, &r.result))
}

// hedgeEnded waits for the end of the hedge's goroutine and evaluates its result.
func (x *exchange) hedgeEnded(r *hedgeAttempt) {
	<-r.done
	r.result = policy.Attempt{Cause: r.cause}
	if r.cause != policy.CauseStatus {
		return
	}
	if x.isIdleTimeout408(&r.resp, r.up.Reused) {
		r.abort()
		r.cause, r.result.Cause = policy.CauseIdleClose, policy.CauseIdleClose
		return
	}
	x.statusOf(&r.result, &r.resp)
}

// switchToHedge continues with the hedge, whose response came first. The upstream may still work on
// the first attempt, as on one whose client has left.
func (x *exchange) switchToHedge(a *policy.Attempt, r *hedgeAttempt) {
	x.tick()
	x.abandonPermit(policy.Abandoned)
	x.throttlerAsked = false // the throttle hears nothing of it
	if x.route.HedgeAfter.Slow() {
		// As after the attempt timeout whose place it takes.
		reportToEndpoint(x.endpoint, &policy.Attempt{Cause: policy.CauseAttemptTimeout})
	}
	*a = policy.Attempt{Cause: policy.CauseReset}
	x.adoptHedge(a, r, policy.Overtaken)
}

// adoptHedge reports the first attempt with its result a, makes the hedge the running attempt, and
// sets a to its result.
func (x *exchange) adoptHedge(a *policy.Attempt, r *hedgeAttempt, class policy.Class) {
	x.abandonPermit(policy.TimedOut) // has no effect where the place was given back
	x.startPause(a)
	if class != policy.Overtaken {
		reportToEndpoint(x.endpoint, a)
	}
	x.attemptDone(a, class)
	x.discard()
	x.countHedge(r)
	if x.clientStaysOn() && x.good(&r.result) {
		x.observer.HedgeWon()
	}
	x.up, x.upReused, x.avoid, x.unchecked = r.up, r.up.Reused, r.up.Addr, false
	x.endpoint = r.member
	x.upR, x.upW, x.upGotBytes, x.earlyErr = r.r, r.w, true, nil
	x.upUntil, x.upWrite = 0, 0
	x.resp, r.resp = r.resp, x.resp
	x.lastPiece.Store(false)
	x.attemptBegan, x.attemptSent = r.began, r.sentAt
	x.trace.attempt, x.trace.peer = r.span, r.addr
	x.waiter.permit, x.throttlerAsked = r.permit, r.asked
	x.respBody.reset()
	*a = r.result
	if a.Header != nil {
		a.Header = &x.resp
	}
}

// dropHedge ends a hedge that lost and reports it. A hedge of which nothing was sent does not
// count.
func (x *exchange) dropHedge(r *hedgeAttempt) {
	ended := r.isOver.Load() && !r.isStopped() // by itself, not when the client left
	r.stop()
	x.hedgeEnded(r)
	x.upUntil = 0 // the rival moved the deadline
	x.countHedge(r)
	x.tick()
	class := x.route.Policy.Classify(&r.result)
	switch {
	case !ended && !r.wrote:
		x.attempts--
		x.retries--
		x.releaseHedgePermit(r, policy.Unsent)
		return
	case !ended && r.cause != policy.CauseStatus:
		x.releaseHedgePermit(r, policy.Abandoned)
		r.asked, class = false, policy.Overtaken
		if !x.clientStaysOn() {
			class = policy.Unknown
		}
	default:
		x.releaseHedgePermit(r, policy.TimedOut)
		reportToEndpoint(r.member, &r.result)
	}
	x.recordHedge(r, class)
	r.abort()
}

// countHedge counts a hedge that was sent, and returns the budget token of one that was not.
func (x *exchange) countHedge(r *hedgeAttempt) {
	x.hedge.attempt, x.hedge.ended = nil, false
	switch {
	case r.wrote:
		x.observer.Hedged()
	case r.budget != nil:
		r.budget.GiveBack()
	}
}

// releaseHedgePermit returns the permit of the hedge. kind says how it ended if it has no result:
// Unsent, or why it is no longer awaited.
func (x *exchange) releaseHedgePermit(r *hedgeAttempt, kind policy.EndKind) {
	permit := r.permit
	r.permit = policy.Permit{}
	if !permit.Taken() {
		return
	}
	d, t := x.route.upstream.door, x.set.server.elapsed()
	e := policy.AttemptEnd{Kind: kind, Key: x.urlKey(), Closed: true}
	switch {
	case kind == policy.Unsent:
		d.handleSignal(d.guard.Release(permit, t, e))
		return
	case kind == policy.Abandoned || r.result.Cause == policy.CauseAttemptTimeout:
		_, signal := d.guard.Abandon(permit, t, e)
		d.handleSignal(signal)
		return
	}
	d.handleSignal(d.guard.Release(permit, t, x.attemptEndOf(&r.result, r.dialErr)))
}

// recordHedge is attemptDone for a hedge that lost.
func (x *exchange) recordHedge(r *hedgeAttempt, class policy.Class) {
	a := &r.result
	x.startPause(a)
	x.exposed = x.exposed || class.Exposes()
	if accepted, known := a.UpstreamAccepted(); r.asked && known {
		x.route.upstream.throttle.Done(accepted)
	}
	took := x.clock.Sub(r.began)
	x.observer.AttemptDone(class, a.Status, took)
	x.attemptLog.attempted(step{
		began: inMicros(r.began.Sub(x.began)), took: inMicros(took), status: int16(a.Status), cause: a.Cause, class: class, addr: r.addr, dial: r.dialErr,
	})
	x.attemptTraced(r.span, a, class, r.addr)
}

// abortHedge ends a race after a fault of the proxy, with only what is necessary.
func (x *exchange) abortHedge() {
	r := x.hedge.attempt
	if r == nil {
		return
	}
	x.hedge.attempt = nil
	r.stop()
	<-r.done
	x.releaseHedgePermit(r, policy.Abandoned)
	r.abort()
}
