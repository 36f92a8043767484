package exchange

import (
	"errors"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
)

// errHedgeEnded ends reading from the first attempt if its hedge has ended.
var errHedgeEnded = errors.New("the hedge ended first")

// raceHedge continues an attempt that has a hedge, after reading its headers ended with cause,
// until one of the two remains. The first good response wins; a failure waits for the other. It
// sets res to the result, like receive. Whatever concerns the client happens here and not in the
// goroutine of the hedge.
func (x *Exchange) raceHedge(res *policy.Attempt, cause policy.Cause) {
	if x.hedge.ended {
		if x.hedge.takeOver(res, x) {
			x.holdHedgesStream(res)
			return
		}
		cause = x.att.ReadFinalHeaders(x, x.Settings.Limits, x.HTTP.Method)
	}
	x.received(res, cause)
	if x.ClientStaysOn() && !x.Good(res) && x.hedge.await(res, x) {
		x.holdHedgesStream(res)
		return
	}
	x.hedge.drop()
}

// holdHedgesStream is the end of received for a hedge that is now the running attempt.
func (x *Exchange) holdHedgesStream(res *policy.Attempt) {
	x.stream = heldStream{}
	if x.holdsStream(res) {
		x.awaitFirstContent(res)
	}
}

// overtook reports whether the hedge ended and was not dealt with yet.
func (ra *race) overtook() bool {
	if ra.running == nil || ra.ended || !ra.running.isOver.Load() {
		return false
	}
	ra.ended = true
	return true
}

// takeOver reports whether the hedge that ended first has a good response. It is then the running
// attempt, and res its result. The upstream may still work on the first attempt, as on one whose
// client has left.
func (ra *race) takeOver(res *policy.Attempt, from attempt.Reader) bool {
	h := ra.running
	h.await(ra.r)
	if !ra.r.Good(&h.result) {
		h.releasePermit(ra.r, breaker.TimedOut) // its response, if it has one, stays in it
		return false
	}
	ra.r.Tick()
	ra.abandonPermit(breaker.Abandoned)
	ra.att.Throttled = false // client-side throttling does not learn its result
	if ra.r.Route.HedgeAfter.Slow() {
		// As after the attempt timeout whose place it takes.
		reportToEndpoint(ra.att.Endpoint, &policy.Attempt{Cause: policy.CauseAttemptTimeout})
	}
	*res = policy.Attempt{Cause: policy.CauseReset}
	ra.adopt(res, policy.Overtaken, from)
	return true
}

// await waits for the hedge after the first attempt failed with res. It reports whether to continue
// with the hedge, which is then the running attempt, and res its result. If the client leaves
// meanwhile, the hedge is the one in flight.
func (ra *race) await(res *policy.Attempt, from attempt.Reader) bool {
	h := ra.running
	ra.r.Tick()
	if res.Cause != policy.CauseAttemptTimeout { // else it may still be gone on with
		ra.adm.releasePermit(res)
	}
	if !h.isOver.Load() {
		ra.upload.stop()
		ra.upload.startWatch(h.stop)
		<-h.done
		ra.upload.stop()
	}
	h.await(ra.r)
	ra.r.Tick()
	stays := ra.r.ClientStaysOn()
	class := ra.r.Route.Policy.Classify(res)
	if h.att.Up != nil && (!stays || ra.r.Good(&h.result) || policy.BetterFailure(res, &h.result)) {
		ra.adopt(res, class, from)
		return true
	}
	if !stays && res.Cause != policy.CauseAttemptTimeout {
		ra.attemptDone(res, class) // nothing is in flight any more
	}
	return false
}

// adopt reports the first attempt with its result res, makes the hedge the running attempt, and
// sets res to its result. from reads the response of the hedge from now on.
func (ra *race) adopt(res *policy.Attempt, class policy.Class, from attempt.Reader) {
	h := ra.running
	ra.abandonPermit(breaker.TimedOut) // has no effect if the permit was released
	ra.r.StartPause(res)
	if class != policy.Overtaken {
		reportToEndpoint(ra.att.Endpoint, res)
	}
	ra.attemptDone(res, class)
	ra.discard()
	ra.finish()
	ra.r.Attempts++
	ra.r.Retries++
	if ra.r.ClientStaysOn() && ra.r.Good(&h.result) {
		ra.report.Observer.HedgeWon()
	}
	ra.att.Resp.Detach()
	ra.att = &h.att
	ra.att.Buffers, ra.avoid = &ra.r.Conn.Buffers, ra.att.Addr
	ra.att.ReadBy, ra.att.WriteBy = 0, 0 // the hedge has set deadlines of its own
	ra.upload.lastPiece.Store(false)
	ra.att.Body.Reset(ra.att, from)
	*res = h.result
}

// drop ends a hedge that lost and reports it. A hedge of which nothing was sent does not count.
func (ra *race) drop() {
	h := ra.running
	ended := h.isOver.Load() && !h.isStopped() // by itself, not when the client left
	h.stop()
	h.await(ra.r)
	ra.att.ReadBy = 0 // the hedge moved the deadline
	ra.r.Tick()
	if !ended && !h.wrote {
		ra.finish()
		h.releasePermit(ra.r, breaker.Unsent)
		return
	}
	ra.finish()
	ra.r.Attempts++
	ra.r.Retries++
	class := ra.r.Route.Policy.Classify(&h.result)
	if !ended && h.cause != policy.CauseStatus {
		h.releasePermit(ra.r, breaker.Abandoned)
		h.att.Throttled, class = false, policy.Overtaken
		if !ra.r.ClientStaysOn() {
			class = policy.Unknown
		}
	} else {
		h.releasePermit(ra.r, breaker.TimedOut)
		reportToEndpoint(h.att.Endpoint, &h.result)
	}
	ra.r.StartPause(&h.result)
	ra.report.Record(&h.att, &h.result, class)
	h.abort()
}

// finish ends the race. It counts a hedge that was sent, and returns the budget token of one that was
// not.
func (ra *race) finish() {
	h := ra.running
	ra.running, ra.ended = nil, false
	switch {
	case h.wrote:
		ra.report.Observer.Hedged()
	case h.budget != nil:
		h.budget.GiveBack()
	}
}

// abort ends the race after a fault of the proxy, with only what is necessary.
func (ra *race) abort() {
	h := ra.running
	if h == nil {
		return
	}
	ra.running = nil
	h.stop()
	<-h.done
	h.releasePermit(ra.r, breaker.Abandoned)
	h.abort()
}
