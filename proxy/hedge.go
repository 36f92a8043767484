package proxy

import (
	"bytes"
	"context"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// A hedge is a second attempt that is sent while the first is still awaited. Whichever responds
// first is relayed. This file decides whether and when; hedgeattempt.go is the hedge itself;
// hedgerace.go decides between the two. See docs/decisions/0006-hedging.md.

// hedgeState is the state of hedging in an exchange.
type hedgeState struct {
	learns  bool          // how long the running attempt takes says what is usual
	after   time.Duration // when it gets its hedge, from its request being sent whole on; 0: never
	sent    bool          // the request has had its hedge
	attempt *hedgeAttempt // ... and it is out
	ended   bool          // the rival ended before the first attempt, which is to be dealt with
}

// armHedge prepares a hedge for the attempt that begins, if a hedge makes sense.
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

// hedgeable reports whether it makes sense to hedge the request. An upgrade or a stream of events
// is a stream, and a gRPC call may be one.
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

// untilHedge returns until, or when the hedge is due if that is sooner.
func (x *exchange) untilHedge(until instant) instant {
	if x.hedge.after == 0 {
		return until
	}
	return earliest(until, x.attemptSent.Add(x.hedge.after))
}

// hedgeDue reports whether the hedge of an attempt that was sent whole is due.
func (x *exchange) hedgeDue() bool {
	return x.hedge.after > 0 && !x.now().Before(x.attemptSent.Add(x.hedge.after))
}

// sendHedge sends the hedge that is due, unless a response has begun to arrive, if the policy and
// all stages of admission allow it. It never waits.
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

// hedgeAllowed checks what retryBlockedBy checks, and two conditions for hedges alone: the breaker
// is closed, and no rate-limit pause is running. asked means that the throttler expects the
// result.
func (x *exchange) hedgeAllowed(now instant) (asked, pass bool) {
	u := x.route.upstream
	if !u.door.guard.BreakerClosed() || x.pauseLeft(now) > 0 || !x.c.server.makesRetry() {
		return false, false
	}
	return x.checkThrottler(now)
}

// hedgePermit takes what a hedge needs: a slot of the rate limit, if there is one, and a permit.
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

// acquireNow takes a permit for an attempt that neither waits for one nor is a probe.
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

// newHedgeAttempt makes the hedge of the running attempt. It counts as an attempt of the request.
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

// wholeRequest returns the request as its next attempt sends it, for a goroutine that may read it
// until the exchange ends. The body must be kept whole.
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

// learnLatency records how long the attempt took that just ended, or how long it was awaited.
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

// hedgeKey is what must stay unchanged over a reload for learnt latencies to stay valid.
type hedgeKey struct {
	route, upstream string
	after           policy.HedgeAfter
}

// hedges returns the hedges of the configuration in force.
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

// hedgeOf returns the hedge of the route, with what the previous configuration has learnt.
func (n *settings) hedgeOf(r *routeState) *policy.Hedge {
	if r.HedgeAfter.Slow() && r.upstream.pool.Fixed() {
		return nil
	}
	if h := n.hedges[hedgeKey{r.Name, r.upstream.key, r.HedgeAfter}]; h != nil {
		return h
	}
	return policy.NewHedge(r.HedgeAfter)
}
