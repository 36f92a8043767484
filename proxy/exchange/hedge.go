package exchange

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// A hedge is a second attempt that is sent while the first is still in flight. The first good
// response is relayed. This file decides whether to send a hedge, and chooses between the two attempts.
// See docs/decisions/0006-hedging.md.

// race is the running attempt of a request and its hedge. The first good response wins. It has no effect
// on requests that are not hedged.
type race struct {
	at *attempts

	running *hedge // in flight; nil: none
	learns  bool   // the duration of the running attempt counts as a usual one
	sent    bool   // the request's hedge was sent
}

// hedge is the second attempt.
type hedge struct {
	*attempt.Attempt
	result policy.Result // after its end
	ticket admission.Ticket
	use    admission.Use // of a rate limit that counts tokens
}

// begin prepares for another request.
func (ra *race) begin() { ra.running, ra.learns, ra.sent = nil, false, false }

// arm returns after which time a hedge of the attempt that begins is due, or 0 if a hedge is not useful.
func (ra *race) arm() time.Duration {
	r := ra.at.Request
	ra.learns = false
	if !r.Dest.MayHedge() {
		return 0
	}
	ra.learns = r.Hedgeable()
	if !ra.learns || ra.sent || ra.at.s.ticket.IsProbe() {
		return 0
	}
	s := ra.at.s.situation()
	if s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // checked again when the request is sent whole
	}
	if r.Route.Policy.MayHedge(&s) != policy.ReasonNone {
		return 0
	}
	return r.Route.Hedge.After(r.Time.SinceStart())
}

// send sends the hedge that is due, if no response has begun to arrive and the policy and all
// stages of admission allow it. It never waits.
func (ra *race) send() {
	r := ra.at.Request
	now := r.Time.Tick()
	situation := ra.at.s.situation()
	if !r.Route.HasHedgeEndpoint() {
		return
	}
	if ra.at.running().HasUnread() || !r.Body.Ended() || r.Route.Policy.MayHedge(&situation) != policy.ReasonNone || !r.Process.MakesRetry() {
		return
	}
	h, n := ra.at.s.admitHedge(now), r.Attempts()+1
	if h == nil {
		return
	}
	ra.sent, ra.running = true, h // also if what follows fails
	h.Begin(n, now, ra.at.report.AttemptSpan(n, now, true), ra.at.s.options(n, 0))
	until := r.Time.Deadline
	if t := r.Time.AttemptTimeout(); t > 0 {
		until = clock.Earliest(until, now.Add(t))
	}
	ra.at.running().StartHedge(h.Attempt, attempt.Hedge{
		Pool: r.Route.UpstreamState.Pool, DialTimeout: r.Route.DialTimeout, Until: until,
		Head: r.Out.ForHedge(h.Attempt),
	})
}

// attemptDone ends the running attempt with the result res.
func (ra *race) attemptDone(res *policy.Result, class policy.Class) {
	if ra.learns {
		ra.learnLatency(res, class)
	}
	ra.at.report.AttemptDone(ra.at.running(), res, class)
}

// learnLatency records how long the attempt took that just ended, or how long the client waited
// for it.
func (ra *race) learnLatency(res *policy.Result, class policy.Class) {
	r := ra.at.Request
	ra.learns = false
	a := ra.at.running()
	if class == policy.NotSent || !a.IsSent() {
		return
	}
	answered := class == policy.ClassNone
	if answered || res.Cause != policy.CauseStatus {
		took := a.ResultAt(r.Time.Clock).Sub(a.SentAt())
		r.Route.Hedge.Learn(took, answered)
	}
}

// evaluate waits for the end of the hedge and finds out its result. It returns how reading its headers
// ended, and whether the upstream got a byte of it. A hedge that sent nothing costs no budget.
func (ra *race) evaluate() (cause policy.Cause, wrote bool) {
	r := ra.at.Request
	h := ra.running
	if cause, wrote = h.HedgeResult(); !wrote {
		h.ticket.ReturnToken()
	}
	h.result = policy.Result{Cause: cause}
	if cause != policy.CauseStatus {
		return cause, wrote
	}
	if !h.InFlight() || r.IsIdleTimeout408(h.Response(), h.Reused()) {
		h.Drop() // once; then it is not in flight
		h.result.Cause = policy.CauseIdleClose
		return policy.CauseIdleClose, wrote
	}
	r.StatusOf(&h.result, h.Response())
	return cause, wrote
}

// takeOver reports whether the hedge that ended first has a good response. If so, the hedge
// becomes the running attempt and res its result. The upstream may still work on the first
// attempt, as if its client had left.
func (ra *race) takeOver(res *policy.Result) bool {
	r := ra.at.Request
	ra.evaluate()
	if !r.Good(&ra.running.result) {
		ra.settle(ra.running, breaker.TimedOut) // its response stays in it
		return false
	}
	r.Time.Tick()
	if r.Route.HedgeAfter.Slow() {
		// The endpoint counts it like an attempt timeout, in whose place it comes.
		ra.at.s.reportToEndpoint(ra.at.running(), &policy.Result{Cause: policy.CauseAttemptTimeout})
	}
	*res = policy.Result{Cause: policy.CauseReset}
	ra.adopt(res, policy.Overtaken)
	return true
}

// await waits for the hedge after the first attempt failed with res. It reports whether the hedge
// becomes the running attempt, with res as its result. If the client leaves during the wait, the
// hedge is the attempt in flight.
func (ra *race) await(res *policy.Result) bool {
	r := ra.at.Request
	r.Time.Tick()
	if res.Cause != policy.CauseAttemptTimeout { // otherwise it may still be resumed
		ra.at.s.release(res)
	}
	ra.at.running().AwaitHedge()
	ra.evaluate()
	r.Time.Tick()
	stays := r.ClientStaysOn()
	class := r.Route.Policy.Classify(res)
	if ra.running.InFlight() && (!stays || r.Good(&ra.running.result) || policy.BetterFailure(res, &ra.running.result)) {
		ra.adopt(res, class)
		return true
	}
	if !stays && res.Cause != policy.CauseAttemptTimeout {
		ra.attemptDone(res, class) // nothing is in flight any more
	}
	return false
}

// adopt reports the first attempt with its result res, makes the hedge the running attempt, and
// sets res to its result. The Guard sees that response first: without it, two attempts would be silent,
// which may open the breaker.
func (ra *race) adopt(res *policy.Result, class policy.Class) {
	r := ra.at.Request
	h := ra.running
	if h.result.Cause == policy.CauseStatus {
		ra.settle(h, breaker.TimedOut)
	}
	kind := breaker.TimedOut
	if class == policy.Overtaken {
		kind = breaker.Abandoned
	}
	ra.at.s.abandonTicket(kind) // no effect if it was settled with a result
	r.StartPause(res)
	if class != policy.Overtaken {
		ra.at.s.reportToEndpoint(ra.at.running(), res)
	}
	ra.attemptDone(res, class)
	ra.at.running().Abandon()
	ra.count()
	r.BeginAttempt()
	r.BeginRetry()
	good := r.Good(&h.result)
	if good && r.ClientStaysOn() {
		ra.at.report.HedgeWon()
	}
	ra.finish()
	ra.at.s.adopt(h)
	h.Adopt(ra.at.s.options(h.Number(), 0), good)
	*res = h.result
}

// drop ends a hedge that lost to res and reports it. A hedge that sent nothing does not count. See
// adopt for the order in which the Guard sees the results.
func (ra *race) drop(res *policy.Result) {
	r := ra.at.Request
	h := ra.running
	if res.Cause == policy.CauseStatus {
		ra.at.s.release(res)
	}
	ended := h.HedgeEnded() // and not because the client left
	h.StopHedge()
	cause, wrote := ra.evaluate()
	r.Time.Tick()
	ra.count()
	if !ended && !wrote {
		ra.settle(h, breaker.Unsent)
		ra.finish()
		return
	}
	r.BeginAttempt()
	r.BeginRetry()
	class := r.Route.Policy.Classify(&h.result)
	if !ended && cause != policy.CauseStatus {
		ra.settle(h, breaker.Abandoned)
		class = policy.Overtaken
		if !r.ClientStaysOn() {
			class = policy.Unknown
		}
	} else {
		ra.settle(h, breaker.TimedOut)
		ra.at.s.reportToEndpoint(h.Attempt, &h.result)
	}
	r.StartPause(&h.result)
	ra.at.report.Record(h.Attempt, &h.result, class)
	h.Drop()
	ra.finish()
}

// count counts the hedge, which has ended, if it was sent.
func (ra *race) count() {
	if _, wrote := ra.running.HedgeResult(); wrote {
		ra.at.report.Hedged()
	}
}

// finish ends the race. From then on abort leaves the hedge alone: it holds nothing, or adopt takes it next.
func (ra *race) finish() {
	ra.running = nil
	ra.at.running().EndHedge()
}

// abort ends the race after a fault of the proxy. It only returns what the race holds.
func (ra *race) abort() {
	h := ra.running
	if h == nil {
		return
	}
	ra.running = nil
	h.StopHedge()
	ra.settle(h, breaker.Abandoned)
	h.Drop()
}

// settle settles the ticket of the hedge h, unless that was done. kind is how it ended if it has no
// result: Unsent, or why it is no longer awaited.
func (ra *race) settle(h *hedge, kind breaker.EndKind) {
	if !h.ticket.IsOpen() {
		return
	}
	r, p := ra.at.Request, h.Progress()
	now := r.Process.Clock.Now()
	switch {
	case kind == breaker.Unsent:
		h.ticket.Return(now)
	case kind == breaker.Abandoned || h.result.Cause == policy.CauseAttemptTimeout:
		h.ticket.Abandon(now, kind, p.AsIfSent()) // its connection may be gone already
	default:
		h.ticket.Release(now, &h.result, p, r.CutDialShort(h.Attempt))
	}
}
