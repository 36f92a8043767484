package proxy

import (
	"bytes"
	"context"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// A hedge is a second attempt that is sent while the first one is still waited
// for; whichever answers first is relayed. This file is about whether and when,
// hedgeattempt.go about the hedge itself, hedgerace.go about what becomes of the two. See
// docs/decisions/0006-hedging.md.

// hedgeState is what an exchange knows of hedging.
type hedgeState struct {
	learns  bool          // how long the running attempt takes says what is usual
	after   time.Duration // when it gets its hedge, from its request being sent whole on; 0: never
	sent    bool          // the request has had its hedge
	attempt *hedgeAttempt // ... and it is out
	ended   bool          // the rival ended before the first attempt, which is to be dealt with
}

// armHedge readies the attempt that begins for a hedge, where it makes sense.
func (x *exchange) armHedge() {
	if x.route.HedgeAfter.Slow() && x.route.upstream.pool.Single() {
		return
	}
	x.hedge.learns = x.hedgeable()
	if x.hedge.learns && !x.hedge.sent && !x.waiter.permit.Probe() && x.mayHedge(nil) == policy.ReasonNone {
		x.hedge.after = x.route.hedge.After(x.set.server.since(x.clock))
	}
}

var eventStream = []byte("text/event-stream")

// hedgeable says whether it makes sense to hedge a request like this. gRPC
// calls may be streams and nothing tells; an upgrade or a stream of events is
// one.
func (x *exchange) hedgeable() bool {
	return x.safe && !x.grpc && x.req.Upgrade == nil && !bytes.Contains(x.req.Get(http1.Accept), eventStream)
}

func (x *exchange) mayHedge(b *policy.Budget) policy.Reason {
	s := x.situation()
	if s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // asked again when it is sent whole
	}
	return x.route.Policy.MayHedge(&s, b, x.set.server.since(x.clock))
}

// untilHedge is until, or when the hedge is due if that is sooner.
func (x *exchange) untilHedge(until instant) instant {
	if x.hedge.after == 0 {
		return until
	}
	return earliest(until, x.attemptSent.Add(x.hedge.after))
}

// hedgeDue says whether it is time for the hedge of an attempt that was sent whole.
func (x *exchange) hedgeDue() bool {
	return x.hedge.after > 0 && !x.now().Before(x.attemptSent.Add(x.hedge.after))
}

// sendHedge sends the hedge that is due, unless the head has begun to come, if
// all agree: the policy, and what stands before any attempt. None of them lets
// it wait.
func (x *exchange) sendHedge() {
	x.hedge.after = 0
	x.tick()
	if x.route.HedgeAfter.Slow() && !x.route.upstream.pool.Several() {
		return
	}
	if x.started || x.upR < x.upW || !x.body.ended || x.replay() != policy.ReplayWhole || x.mayHedge(nil) != policy.ReasonNone {
		return
	}
	asked, pass := x.hedgeAllowed(x.clock)
	budget := x.route.budget()
	if !pass || x.mayHedge(budget) != policy.ReasonNone {
		return
	}
	permit, ok := x.hedgePermit(x.set.server.since(x.clock))
	if !ok {
		if budget != nil {
			budget.GiveBack()
		}
		return
	}
	x.hedge.sent = true
	x.hedge.attempt = x.newHedgeAttempt(permit, asked, budget)
	go x.hedge.attempt.run()
}

// hedgeAllowed asks what may speak against a retry beyond the policy, as against
// does, and what speaks against a hedge only: a breaker that is not closed, and the
// end of a rate-limit pause that would have to be waited for. asked: the throttle waits
// to hear of it.
func (x *exchange) hedgeAllowed(now instant) (asked, pass bool) {
	u := x.route.upstream
	if !u.door.guard.BreakerClosed() || x.pauseLeft(now) > 0 || !x.c.server.makesRetry() {
		return false, false
	}
	return x.checkThrottler(now)
}

// hedgePermit takes what a hedge needs: a slot of the rate limit, where there is one, and a
// place at the upstream.
func (x *exchange) hedgePermit(now time.Duration) (policy.Permit, bool) {
	var q *rateLimitQueue
	if s := x.route.rateLimit; s != nil {
		if q = s.queueOf(x.rateLimitKey(s), now); !q.takeNow(now) {
			return policy.Permit{}, false
		}
	}
	permit, ok := x.route.upstream.door.acquireNow(now)
	if !ok && q != nil {
		q.giveBack(now)
	}
	return permit, ok
}

// acquireNow takes a place for an attempt that does not wait for one and is no probe.
func (d *admissionQueue) acquireNow(now time.Duration) (policy.Permit, bool) {
	if permit, ok := d.guard.AcquireFast(now); ok {
		return permit, true
	}
	var w waiter
	switch decision, _, _ := d.acquire(&w, now, func(policy.Verdict) bool { return false }); decision {
	case decisionAdmit:
		return w.permit, true
	case decisionProbe:
		d.handleSignal(d.guard.Release(w.permit, now, policy.AttemptEnd{Kind: policy.Unsent}))
	}
	return policy.Permit{}, false
}

// newHedgeAttempt makes the hedge of the running attempt, as one of the request's
// attempts.
func (x *exchange) newHedgeAttempt(permit policy.Permit, asked bool, budget *policy.Budget) *hedgeAttempt {
	x.attempts++
	x.retries++
	span := x.traceAttempt(x.clock, true)
	r := &hedgeAttempt{
		first: x.up, pool: x.route.upstream.pool, server: x.c.server,
		span: span, request: x.wholeRequest(span), method: x.req.Method, limits: x.set.Limits,
		permit: permit, asked: asked, budget: budget, began: x.clock, done: make(chan struct{}),
	}
	if x.route.FaultInjection != nil {
		r.fault = x.drawFault()
	}
	r.until = x.deadline
	if t := x.attemptTimeout(); t > 0 {
		r.until = earliest(x.deadline, x.clock.Add(t))
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if !r.until.IsZero() {
		r.ctx, r.cancel = context.WithDeadline(context.Background(), x.c.server.at(r.until))
	}
	return r
}

// wholeRequest is the request as its next attempt sends it, for a goroutine
// that may read it until the exchange ends. Its body is kept whole.
func (x *exchange) wholeRequest(span AttemptSpan) [][]byte {
	x.renderHead()
	headers := make([]byte, 0, len(x.requestHeaders)+smallBuffer/8)
	parts := [][]byte{x.finishHead(append(headers, x.requestHeaders...), false, span)}
	chunked := x.body.framing.Kind == http1.BodyChunked
	for _, piece := range x.body.kept {
		switch {
		case len(piece) == 0:
		case chunked:
			parts = append(parts, http1.AppendChunkSize(nil, int64(len(piece))), piece, chunkEnd)
		default:
			parts = append(parts, piece)
		}
	}
	if chunked {
		parts = append(parts, x.lastChunk())
	}
	return parts
}

// learnLatency takes in how long the attempt that just ended took, or how long
// it was waited for. Called when that is wanted of it.
func (x *exchange) learnLatency(a *policy.Attempt, class policy.Class) {
	x.hedge.learns = false
	if class == policy.NotSent || x.progress.Load() != sent {
		return
	}
	answered := class == policy.ClassNone
	if answered || a.Cause != policy.CauseStatus {
		x.route.hedge.Learn(x.clock.Sub(x.attemptSent), answered)
	}
}

// hedgeKey is what has to stay as it is over a reload for what was learnt to
// stay true.
type hedgeKey struct {
	route, upstream string
	after           policy.HedgeAfter
}

// hedges are those of the version in force.
func (s *Server) hedges() map[hedgeKey]*policy.Hedge {
	known := map[hedgeKey]*policy.Hedge{}
	if now := s.settings.Load(); now != nil {
		for _, r := range now.all {
			if r.hedge != nil {
				known[hedgeKey{r.Name, r.upstream.key, r.HedgeAfter}] = r.hedge
			}
		}
	}
	return known
}

// hedgeOf is the route's, with what the version before had learnt.
func (n *settings) hedgeOf(r *routeState) *policy.Hedge {
	if r.HedgeAfter.Slow() && r.upstream.pool.Fixed() {
		return nil
	}
	if h := n.hedges[hedgeKey{r.Name, r.upstream.key, r.HedgeAfter}]; h != nil {
		return h
	}
	return policy.NewHedge(r.HedgeAfter)
}
