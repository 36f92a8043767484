package exchange

import (
	"errors"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// errHedgeEnded ends reading from the first attempt when its hedge ends.
var errHedgeEnded = errors.New("the hedge ended first")

// overtook reports whether the hedge ended and its result is not handled yet.
func (ra *race) overtook() bool {
	if ra.running == nil || ra.ended || !ra.running.IsOver() {
		return false
	}
	ra.ended = true
	return true
}

// takeOver reports whether the hedge that ended first has a good response. If so, the hedge
// becomes the running attempt and res its result. The upstream may still work on the first
// attempt, as if its client had left.
func (ra *race) takeOver(res *policy.Attempt, from attempt.Reader) bool {
	h := ra.running
	h.Await(ra.s.r)
	if !ra.s.r.Good(&h.Result) {
		h.ReleasePermit(ra.s.r, breaker.TimedOut) // its response stays in it
		return false
	}
	ra.s.r.Time.Tick()
	ra.s.abandonPermit(breaker.Abandoned)
	ra.s.att.Throttled = false // client-side throttling does not count its result
	if ra.s.r.Route.HedgeAfter.Slow() {
		// The endpoint counts it like an attempt timeout, in whose place it comes.
		reportToEndpoint(ra.s.att.Endpoint, &policy.Attempt{Cause: policy.CauseAttemptTimeout})
	}
	*res = policy.Attempt{Cause: policy.CauseReset}
	ra.adopt(res, policy.Overtaken, from)
	return true
}

// await waits for the hedge after the first attempt failed with res. It reports whether the hedge
// becomes the running attempt, with res as its result. If the client leaves during the wait, the
// hedge is the attempt in flight.
func (ra *race) await(res *policy.Attempt, from attempt.Reader) bool {
	h := ra.running
	ra.s.r.Time.Tick()
	if res.Cause != policy.CauseAttemptTimeout { // otherwise it may still be resumed
		ra.s.admit.Release(ra.s.att, res)
	}
	if !h.IsOver() {
		ra.s.upload.Stop()
		ra.s.upload.StartWatch(h.Stop)
		<-h.Done
		ra.s.upload.Stop()
	}
	h.Await(ra.s.r)
	ra.s.r.Time.Tick()
	stays := ra.s.r.ClientStaysOn()
	class := ra.s.r.Route.Policy.Classify(res)
	if h.Att.Up != nil && (!stays || ra.s.r.Good(&h.Result) || policy.BetterFailure(res, &h.Result)) {
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
	ra.s.abandonPermit(breaker.TimedOut) // no effect if the permit was released
	ra.s.r.StartPause(res)
	if class != policy.Overtaken {
		reportToEndpoint(ra.s.att.Endpoint, res)
	}
	ra.attemptDone(res, class)
	ra.s.discard()
	ra.finish()
	ra.s.r.Attempts++
	ra.s.r.Retries++
	if ra.s.r.ClientStaysOn() && ra.s.r.Good(&h.Result) {
		ra.report.Observer.HedgeWon()
	}
	ra.s.att.Resp.Detach()
	ra.s.att = &h.Att
	ra.s.att.Buffers, ra.s.avoid = &ra.s.r.Conn.Buffers, ra.s.att.Addr
	ra.s.att.ReadBy, ra.s.att.WriteBy = 0, 0 // the hedge has set deadlines of its own
	ra.s.upload.Serve(ra.s.att)
	ra.s.att.Body.Reset(ra.s.att, from)
	*res = h.Result
}

// drop ends a hedge that lost and reports it. A hedge that sent nothing does not count.
func (ra *race) drop() {
	h := ra.running
	ended := h.IsOver() && !h.IsStopped() // on its own, not because the client left
	h.Stop()
	h.Await(ra.s.r)
	ra.s.att.ReadBy = 0 // the hedge moved the deadline
	ra.s.r.Time.Tick()
	if !ended && !h.Wrote {
		ra.finish()
		h.ReleasePermit(ra.s.r, breaker.Unsent)
		return
	}
	ra.finish()
	ra.s.r.Attempts++
	ra.s.r.Retries++
	class := ra.s.r.Route.Policy.Classify(&h.Result)
	if !ended && h.Cause != policy.CauseStatus {
		h.ReleasePermit(ra.s.r, breaker.Abandoned)
		h.Att.Throttled, class = false, policy.Overtaken
		if !ra.s.r.ClientStaysOn() {
			class = policy.Unknown
		}
	} else {
		h.ReleasePermit(ra.s.r, breaker.TimedOut)
		reportToEndpoint(h.Att.Endpoint, &h.Result)
	}
	ra.s.r.StartPause(&h.Result)
	ra.report.Record(&h.Att, &h.Result, class)
	h.Abort()
}

// finish ends the race. It counts a hedge that was sent. It returns the budget token of a hedge
// that was not sent.
func (ra *race) finish() {
	h := ra.running
	ra.running, ra.ended = nil, false
	switch {
	case h.Wrote:
		ra.report.Observer.Hedged()
	case h.Budget != nil:
		h.Budget.GiveBack()
	}
}

// abort ends the race after a fault of the proxy. It only returns what the race holds.
func (ra *race) abort() {
	h := ra.running
	if h == nil {
		return
	}
	ra.running = nil
	h.End()
	h.ReleasePermit(ra.s.r, breaker.Abandoned)
	h.Abort()
}

// reportToEndpoint records the result a of an attempt with the endpoint m. m is nil if there is
// only one endpoint. Dials are counted where they are made.
func reportToEndpoint(m *upstream.Endpoint, a *policy.Attempt) {
	switch {
	case m == nil:
	case a.Cause == policy.CauseIdleClose, a.Cause == policy.CauseRefusedStream:
		// A restart closes all idle connections at once, and REFUSED_STREAM only means that there
		// was no room.
	case a.Cause != policy.CauseStatus, countsAgainstEndpoint(a.JudgedStatus()):
		m.ReportFailure()
	default:
		m.ReportSuccess()
	}
}

// countsAgainstEndpoint reports whether a status is evidence of a broken endpoint. A 500 usually
// comes from the request or from code that all endpoints share; a 429 concerns the client.
func countsAgainstEndpoint(status int) bool { return status >= 502 && status <= 504 }
