package exchange

import (
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/hedging"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// A hedge is a second attempt that is sent while the first is still in flight. The first good
// response is relayed. This file decides whether and when to send a hedge, and chooses
// between the two attempts. Package hedging makes the attempt. See docs/decisions/0006-hedging.md.

// race is the running attempt of a request and its hedge. The first good response wins. It also
// computes when the hedge is due. It has no effect on requests that are not hedged.
type race struct {
	s      *sender
	report *report.Report

	after   time.Duration    // the delay of the hedge after the request was sent whole; 0: no hedge
	running *hedging.Attempt // the hedge in flight
	learns  bool             // the duration of the running attempt counts as a usual one
	sent    bool             // the request's hedge was sent
	ended   bool             // the hedge ended before the first attempt; its result is not handled yet
}

// begin prepares for another request.
func (ra *race) begin() {
	ra.after, ra.running = 0, nil
	ra.learns, ra.sent, ra.ended = false, false, false
}

// arm prepares a hedge for the attempt that begins, if a hedge is useful.
func (ra *race) arm() {
	if ra.s.r.Route.HedgeAfter.Slow() && ra.s.r.Route.UpstreamState.Pool.Single() {
		return
	}
	ra.learns = ra.s.r.Hedgeable()
	if !ra.learns || ra.sent || ra.s.att.Permit.Probe() {
		return
	}
	s := ra.s.situation()
	if s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // checked again when the request is sent whole
	}
	if ra.mayHedge(&s, nil) {
		ra.after = ra.s.r.Route.Hedge.After(ra.s.r.Process.Clock.Since(ra.s.r.Time.Clock))
	}
}

// mayHedge reports whether the policy allows a hedge. It takes a token of b unless b is nil.
func (ra *race) mayHedge(s *policy.Situation, b *budget.Budget) bool {
	return ra.s.r.Route.Policy.MayHedge(s, b, ra.s.r.Process.Clock.Since(ra.s.r.Time.Clock)) == policy.ReasonNone
}

// untilDue returns until, or the time when the hedge is due if that is sooner.
func (ra *race) untilDue(until clock.Instant) clock.Instant {
	if ra.after == 0 {
		return until
	}
	return request.Earliest(until, ra.s.att.SentAt.Add(ra.after))
}

// due reports whether the hedge of an attempt that was sent whole is due.
func (ra *race) due() bool {
	return ra.after > 0 && !ra.s.r.Time.Now().Before(ra.s.att.SentAt.Add(ra.after))
}

// send sends the hedge that is due, if no response has begun to arrive and the policy and all
// stages of admission allow it. It never waits.
func (ra *race) send() {
	ra.s.r.Time.Tick()
	situation := ra.s.situation()
	ra.after = 0
	if ra.s.r.Route.HedgeAfter.Slow() && !ra.s.r.Route.UpstreamState.Pool.Several() {
		return
	}
	if ra.s.att.R < ra.s.att.W || !ra.s.r.Body.Ended() || !ra.mayHedge(&situation, nil) {
		return
	}
	budget := ra.s.r.Route.RetryBudget()
	if !ra.s.admit.HedgeAllowed(ra.s.r.Time.Clock) || !ra.mayHedge(&situation, budget) {
		return
	}
	permit, ok := ra.s.r.Route.HedgePermit(ra.s.r.HTTP, ra.s.r.Tokens.Model(), ra.s.r.Process.Clock.Since(ra.s.r.Time.Clock))
	if !ok {
		if budget != nil {
			budget.GiveBack()
		}
		return
	}
	ra.sent = true
	ra.running = hedging.New(ra.s.r, ra.s.att.Up, permit, budget)
	a := &ra.running.Att
	a.Span = ra.report.AttemptSpan(a, true)
	parts := ra.wholeRequest(a)
	ra.running.Start(parts)
}

// wholeRequest returns the request as its next attempt sends it. Another goroutine may read it
// until the exchange ends. The body must be kept whole.
func (ra *race) wholeRequest(a *attempt.Attempt) [][]byte {
	ra.s.r.Out.Render()
	headers := make([]byte, 0, len(ra.s.r.Out.Headers)+buffer.Small/8)
	parts := [][]byte{ra.s.r.Out.Finish(append(headers, ra.s.r.Out.Headers...), false, a)}
	return append(parts, attempt.WholeBody(&ra.s.r.Body)...)
}

// attemptDone ends the running attempt with the result res.
func (ra *race) attemptDone(res *policy.Attempt, class policy.Class) {
	if ra.learns {
		ra.learnLatency(res, class)
	}
	ra.report.AttemptDone(ra.s.att, res, class)
}

// learnLatency records how long the attempt took that just ended, or how long the client waited
// for it.
func (ra *race) learnLatency(a *policy.Attempt, class policy.Class) {
	ra.learns = false
	if class == policy.NotSent || ra.s.att.Progress.Load() != attempt.Sent {
		return
	}
	answered := class == policy.ClassNone
	if answered || a.Cause != policy.CauseStatus {
		ra.s.r.Route.Hedge.Learn(ra.s.r.Time.Clock.Sub(ra.s.att.SentAt), answered)
	}
}

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
	if ra.s.r.Route.HedgeAfter.Slow() {
		// The endpoint counts it like an attempt timeout, in whose place it comes.
		ra.s.reportToEndpoint(ra.s.att, &policy.Attempt{Cause: policy.CauseAttemptTimeout})
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
		ra.s.att.Upload().Stop()
		ra.s.att.Upload().StartWatch(h.Stop)
		<-h.Done
		ra.s.att.Upload().Stop()
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
// sets res to its result. from reads the response of the hedge from now on. The Guard sees that
// response first: without it, two attempts would be silent, which may open the breaker.
func (ra *race) adopt(res *policy.Attempt, class policy.Class, from attempt.Reader) {
	h := ra.running
	if h.Result.Cause == policy.CauseStatus {
		ra.s.admit.Release(&h.Att, &h.Result)
	}
	kind := breaker.TimedOut
	if class == policy.Overtaken {
		kind = breaker.Abandoned
	}
	ra.s.abandonPermit(kind) // no effect if the permit was released
	ra.s.r.StartPause(res)
	if class != policy.Overtaken {
		ra.s.reportToEndpoint(ra.s.att, res)
	}
	ra.attemptDone(res, class)
	ra.s.discard()
	ra.finish()
	ra.s.r.BeginAttempt()
	ra.s.r.BeginRetry()
	if ra.s.r.ClientStaysOn() && ra.s.r.Good(&h.Result) {
		ra.report.Observer.HedgeWon()
	}
	ra.s.att.Response().Detach()
	ra.s.att = &h.Att
	ra.s.att.Buffers, ra.s.avoid = &ra.s.r.Conn.Buffers, ra.s.att.Addr
	ra.s.att.Serve(ra.s.r, &ra.s.r.Body, ra.s.options())
	ra.s.att.ReadBy, ra.s.att.WriteBy = 0, 0 // the hedge has set deadlines of its own
	ra.s.att.ReadBody(from, ra.s.r.Settings.Limits)
	*res = h.Result
}

// drop ends a hedge that lost to res and reports it. A hedge that sent nothing does not count. See
// adopt for the order in which the Guard sees the results.
func (ra *race) drop(res *policy.Attempt) {
	h := ra.running
	if res.Cause == policy.CauseStatus {
		ra.s.admit.Release(ra.s.att, res)
	}
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
	ra.s.r.BeginAttempt()
	ra.s.r.BeginRetry()
	class := ra.s.r.Route.Policy.Classify(&h.Result)
	if !ended && h.Cause != policy.CauseStatus {
		h.ReleasePermit(ra.s.r, breaker.Abandoned)
		class = policy.Overtaken
		if !ra.s.r.ClientStaysOn() {
			class = policy.Unknown
		}
	} else {
		h.ReleasePermit(ra.s.r, breaker.TimedOut)
		ra.s.reportToEndpoint(&h.Att, &h.Result)
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
