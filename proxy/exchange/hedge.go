package exchange

import (
	"context"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// A hedge is a second attempt that is sent while the first is still awaited. Whichever responds
// first is relayed. This file decides whether and when; hedgeattempt.go is the hedge itself;
// hedgerace.go decides between the two. See docs/decisions/0006-hedging.md.

// race is the running attempt of a request beside its hedge. The first good response wins. It
// also knows when the hedge is due, and has no effect on requests that are not hedged.
type race struct {
	*sender
	hedgeState
}

// hedgeState is how far hedging has come in a request. The zero value is that of a request that has
// just begun.
type hedgeState struct {
	after   time.Duration // when the running attempt gets its hedge, from its request being sent whole on; 0: never
	running *hedgeAttempt // the hedge in flight
	learns  bool          // the duration of the running attempt says what is usual
	sent    bool          // the request has had its hedge
	ended   bool          // the hedge ended before the first attempt, and that is to be dealt with
}

// arm prepares a hedge for the attempt that begins in the situation s, if a hedge makes sense.
func (ra *race) arm(s policy.Situation) {
	if ra.r.Route.HedgeAfter.Slow() && ra.r.Route.UpstreamState.Pool.Single() {
		return
	}
	ra.learns = ra.r.Hedgeable()
	if !ra.learns || ra.sent || ra.att.Permit.Probe() {
		return
	}
	if s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // asked again when it is sent whole
	}
	if ra.mayHedge(&s, nil) {
		ra.after = ra.r.Route.Hedge.After(ra.r.Process.Clock.Since(ra.r.Clock))
	}
}

// mayHedge reports whether the policy allows a hedge. It takes a token of b unless b is nil.
func (ra *race) mayHedge(s *policy.Situation, b *budget.Budget) bool {
	return ra.r.Route.Policy.MayHedge(s, b, ra.r.Process.Clock.Since(ra.r.Clock)) == policy.ReasonNone
}

// untilDue returns until, or when the hedge is due if that is sooner.
func (ra *race) untilDue(until clock.Instant) clock.Instant {
	if ra.after == 0 {
		return until
	}
	return request.Earliest(until, ra.att.SentAt.Add(ra.after))
}

// due reports whether the hedge of an attempt that was sent whole is due.
func (ra *race) due() bool {
	return ra.after > 0 && !ra.r.Now().Before(ra.att.SentAt.Add(ra.after))
}

// sendHedge sends the hedge that is due.
func (x *Exchange) sendHedge() {
	x.Tick()
	x.hedge.send(x.situation())
}

// send sends the hedge in the situation s, unless a response has begun to arrive, if the policy and
// all stages of admission allow it. It never waits.
func (ra *race) send(s policy.Situation) {
	ra.after = 0
	if ra.r.Route.HedgeAfter.Slow() && !ra.r.Route.UpstreamState.Pool.Several() {
		return
	}
	if ra.att.R < ra.att.W || !ra.r.Body.Ended || !ra.mayHedge(&s, nil) {
		return
	}
	asked, pass := ra.adm.hedgeAllowed(ra.r.Clock)
	budget := ra.r.Route.RetryBudget()
	if !pass || !ra.mayHedge(&s, budget) {
		return
	}
	permit, ok := ra.r.Route.HedgePermit(ra.r.HTTP, ra.r.Process.Clock.Since(ra.r.Clock))
	if !ok {
		if budget != nil {
			budget.GiveBack()
		}
		return
	}
	ra.sent = true
	ra.running = ra.newHedge(permit, asked, budget)
	go ra.running.run()
}

// hedgeAllowed checks what retryBlockedBy checks, and two conditions for hedges alone: the breaker
// is closed, and no rate-limit pause is running. asked means that the throttler expects the
// result.
func (a *admitter) hedgeAllowed(now clock.Instant) (asked, pass bool) {
	u := a.r.Route.UpstreamState
	if !u.Admission.Guard.BreakerClosed() || a.r.PauseLeft(now) > 0 || !a.r.Process.MakesRetry() {
		return false, false
	}
	return a.checkThrottler(now)
}

// newHedge makes the hedge of the running attempt. It counts as an attempt once it was sent.
func (ra *race) newHedge(permit breaker.Permit, asked bool, budget *budget.Budget) *hedgeAttempt {
	h := &hedgeAttempt{
		beside: ra.att.Up, pool: ra.r.Route.UpstreamState.Pool, method: ra.r.HTTP.Method, limits: ra.r.Settings.Limits,
		budget: budget, onFault: ra.r.Process.OnFault, done: make(chan struct{}),
	}
	a := &h.att
	a.Host, a.Buffers = &ra.r.Process.Attempts, &h.buffers
	a.Number, a.Permit, a.Throttled, a.Began = int32(ra.r.Attempts+1), permit, asked, ra.r.Clock
	a.Span = ra.report.AttemptSpan(a, true)
	h.request = ra.wholeRequest(a)
	if ra.r.Route.FaultInjection != nil {
		a.Fault = attempt.NewFault(ra.report.DrawFault())
	}
	h.until = ra.r.Deadline
	if t := ra.r.AttemptTimeout(); t > 0 {
		h.until = request.Earliest(ra.r.Deadline, ra.r.Clock.Add(t))
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if !h.until.IsZero() {
		h.ctx, h.cancel = context.WithDeadline(context.Background(), ra.r.Process.Clock.At(h.until))
	}
	return h
}

// wholeRequest returns the request as its next attempt sends it, for a goroutine that may read it
// until the exchange ends. The body must be kept whole.
func (ra *race) wholeRequest(a *attempt.Attempt) [][]byte {
	ra.r.RenderHeaders()
	headers := make([]byte, 0, len(ra.r.RequestHeaders)+buffer.Small/8)
	parts := [][]byte{ra.r.FinishHeaders(append(headers, ra.r.RequestHeaders...), false, a)}
	chunked := ra.r.Body.Framing.Kind == http1.BodyChunked
	for _, piece := range ra.r.Body.Kept {
		switch {
		case len(piece) == 0:
		case chunked:
			parts = append(parts, http1.AppendChunkSize(nil, int64(len(piece))), piece, chunkEnd)
		default:
			parts = append(parts, piece)
		}
	}
	if chunked {
		parts = append(parts, ra.upload.lastChunk())
	}
	return parts
}

// attemptDone ends the running attempt with the result res.
func (ra *race) attemptDone(res *policy.Attempt, class policy.Class) {
	if ra.learns {
		ra.learnLatency(res, class)
	}
	ra.report.AttemptDone(ra.att, res, class)
}

// learnLatency records how long the attempt took that just ended, or how long it was awaited.
func (ra *race) learnLatency(a *policy.Attempt, class policy.Class) {
	ra.learns = false
	if class == policy.NotSent || ra.att.Progress.Load() != attempt.Sent {
		return
	}
	answered := class == policy.ClassNone
	if answered || a.Cause != policy.CauseStatus {
		ra.r.Route.Hedge.Learn(ra.r.Clock.Sub(ra.att.SentAt), answered)
	}
}
