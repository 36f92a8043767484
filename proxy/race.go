package proxy

import (
	"errors"

	"github.com/retryproxy/retryproxy/policy"
)

// errOvertaken ends the reading of the first attempt when its rival has ended.
var errOvertaken = errors.New("the hedge ended first")

// overtaken says whether the rival ended and was not dealt with yet.
func (x *exchange) overtaken() bool {
	r := x.hedge.rival
	if r == nil || x.hedge.ended || !r.over.Load() {
		return false
	}
	x.hedge.ended = true
	return true
}

// race goes on with an attempt that has a hedge beside it, after the reading of
// its head ended with cause, until the two are one again: the first good response
// wins, and a failure waits for the other. a is what that one brought, as receive does it.
// All that happens to the client happens here and not in the rival's goroutine.
func (x *exchange) race(a *policy.Attempt, cause policy.Cause) {
	r := x.hedge.rival
	if x.hedge.ended {
		x.rivalEnded(r)
		if x.good(&r.result) {
			x.overtake(a, r)
			return
		}
		x.leaveRival(r, policy.TimedOut) // its response, if it has one, stays in it
		cause = x.readFinalHead()
	}
	x.received(a, cause)
	if x.clientStaysOn() && !x.good(a) {
		if x.awaitRival(r, a) {
			x.replace(a, r, x.route.Policy.Classify(a))
			return
		}
		if !x.clientStaysOn() && a.Cause != policy.CauseAttemptTimeout {
			x.attemptDone(a, x.route.Policy.Classify(a)) // nothing is in flight any more
		}
	}
	x.dismiss(r)
}

func (x *exchange) clientStaysOn() bool { return x.clientEnd.Load() == clientStays }

// good says whether a is an answer to relay.
func (x *exchange) good(a *policy.Attempt) bool {
	return a.Cause == policy.CauseStatus && !x.route.Policy.Fails(a)
}

// awaitRival waits for the rival after the first attempt failed with a, and
// says whether to go on with it. When the client leaves meanwhile, that is the
// one still in flight.
func (x *exchange) awaitRival(r *rival, a *policy.Attempt) bool {
	x.tick()
	if a.Cause != policy.CauseAttemptTimeout { // else it may still be gone on with
		x.vacate(a)
	}
	if !r.over.Load() {
		x.stopPump()
		x.startWatch(r.stop)
		<-r.done
		x.stopPump()
	}
	x.rivalEnded(r)
	x.tick()
	if !x.clientStaysOn() {
		return r.up != nil
	}
	return r.up != nil && (x.good(&r.result) || policy.BetterFailure(a, &r.result))
}

// rivalEnded waits for the end of the rival's goroutine and finds out what it brought.
func (x *exchange) rivalEnded(r *rival) {
	<-r.done
	r.result = policy.Attempt{Cause: r.cause}
	if r.cause != policy.CauseStatus {
		return
	}
	if x.lateRefusal(&r.resp, r.up.Reused) {
		r.abort()
		r.cause, r.result.Cause = policy.CauseIdleClose, policy.CauseIdleClose
		return
	}
	x.statusOf(&r.result, &r.resp)
}

// overtake goes on with the rival, whose answer came first. The upstream may
// still work on the first attempt, as on one whose client has left.
func (x *exchange) overtake(a *policy.Attempt, r *rival) {
	x.tick()
	x.desert(policy.Abandoned)
	x.asked = false // the throttle hears nothing of it
	if x.route.HedgeAfter.Slow() {
		// As after the attempt timeout whose place it takes.
		judgeMember(x.member, &policy.Attempt{Cause: policy.CauseAttemptTimeout})
	}
	*a = policy.Attempt{Cause: policy.CauseReset}
	x.replace(a, r, policy.Overtaken)
}

// replace closes the books of the first attempt, which brought a, and makes
// the rival the running one, and a what that brought.
func (x *exchange) replace(a *policy.Attempt, r *rival, class policy.Class) {
	x.desert(policy.TimedOut) // has no effect where the place was given back
	x.noteRateLimitPause(a)
	if class != policy.Overtaken {
		judgeMember(x.member, a)
	}
	x.attemptDone(a, class)
	x.discard()
	x.countHedge(r)
	if x.clientStaysOn() && x.good(&r.result) {
		x.observer.HedgeWon()
	}
	x.up, x.upReused, x.avoid, x.unseen = r.up, r.up.Reused, r.up.Addr, false
	x.member = r.member
	x.upR, x.upW, x.upAsked, x.early = r.r, r.w, true, nil
	x.upUntil, x.upWrite = 0, 0
	x.resp, r.resp = r.resp, x.resp
	x.lastPiece.Store(false)
	x.attemptT, x.attemptSent = r.began, r.sentAt
	x.trace.attempt, x.trace.peer = r.span, r.addr
	x.waiter.place, x.asked = r.place, r.asked
	x.answer.reset()
	*a = r.result
	if a.Header != nil {
		a.Header = &x.resp
	}
}

// dismiss ends the rival, which is not gone on with, and closes its books. One
// of which nothing was sent yet was none.
func (x *exchange) dismiss(r *rival) {
	ended := r.over.Load() && !r.isStopped() // by itself, not when the client left
	r.stop()
	x.rivalEnded(r)
	x.upUntil = 0 // the rival moved the deadline
	x.countHedge(r)
	x.tick()
	class := x.route.Policy.Classify(&r.result)
	switch {
	case !ended && !r.wrote:
		x.attempts--
		x.retries--
		x.leaveRival(r, policy.Unsent)
		return
	case !ended && r.cause != policy.CauseStatus:
		x.leaveRival(r, policy.Abandoned)
		r.asked, class = false, policy.Overtaken
		if !x.clientStaysOn() {
			class = policy.Unknown
		}
	default:
		x.leaveRival(r, policy.TimedOut)
		judgeMember(r.member, &r.result)
	}
	x.bookRival(r, class)
	r.abort()
}

// countHedge counts a hedge that was sent; the budget has its token back from one
// that was not.
func (x *exchange) countHedge(r *rival) {
	x.hedge.rival, x.hedge.ended = nil, false
	switch {
	case r.wrote:
		x.observer.Hedged()
	case r.budget != nil:
		r.budget.GiveBack()
	}
}

// leaveRival gives the rival's place back. kind is how it ended if it brought
// nothing: Unsent, or why it is no longer waited for.
func (x *exchange) leaveRival(r *rival, kind policy.EndKind) {
	place := r.place
	r.place = policy.Permit{}
	if !place.Taken() {
		return
	}
	d, t := x.route.upstream.door, x.set.server.elapsed()
	e := policy.AttemptEnd{Kind: kind, Key: x.urlKey(), Closed: true}
	switch {
	case kind == policy.Unsent:
		d.heed(d.guard.Release(place, t, e))
		return
	case kind == policy.Abandoned || r.result.Cause == policy.CauseAttemptTimeout:
		_, signal := d.guard.Abandon(place, t, e)
		d.heed(signal)
		return
	}
	d.heed(d.guard.Release(place, t, x.endingOf(&r.result, r.dialErr)))
}

// bookRival is attemptDone for the rival that is not gone on with.
func (x *exchange) bookRival(r *rival, class policy.Class) {
	a := &r.result
	x.noteRateLimitPause(a)
	x.exposed = x.exposed || class.Exposes()
	if accepted, known := a.UpstreamAccepted(); r.asked && known {
		x.route.upstream.throttle.Done(accepted)
	}
	took := x.clock.Sub(r.began)
	x.observer.AttemptDone(class, a.Status, took)
	x.trail.attempted(step{
		began: inMicros(r.began.Sub(x.began)), took: inMicros(took), status: int16(a.Status), cause: a.Cause, class: class, addr: r.addr, dial: r.dialErr,
	})
	x.attemptTraced(r.span, a, class, r.addr)
}

// forsake ends a race after a fault, with nothing more than has to be.
func (x *exchange) forsake() {
	r := x.hedge.rival
	if r == nil {
		return
	}
	x.hedge.rival = nil
	r.stop()
	<-r.done
	x.leaveRival(r, policy.Abandoned)
	r.abort()
}
