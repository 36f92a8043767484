package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Fallback is what answers when all else failed. See
// docs/decisions/0009-fallback.md.
type Fallback struct {
	// Status, where it is not 0, and Body are the response.
	Status int // 200 to 599
	Body   []byte

	// Upstream is asked instead, once, where Status is 0. Forward are the
	// settings of its requests.
	Upstream upstream.Target
	Forward  forward.Settings
}

// What answered, as X-Retryproxy-Fallback tells it.
const (
	fallbackResponse = "answer"
	fallbackUpstream = "upstream"
)

// fallbackTimeDivisor is the part of a request's time that is kept back for a
// fallback upstream, so that an upstream which never answers leaves it some: a
// tenth.
const fallbackTimeDivisor = 10

// fallbackTimeout bounds the one attempt at a fallback upstream where neither the
// attempt timeout nor the request's does.
const fallbackTimeout = 10 * time.Second

// fallbackRoute is the route as a request to its fallback upstream sees it: the
// same, but for where it goes and that nobody waits there.
func fallbackRoute(r *Route) *Route {
	spare := *r
	spare.Upstream, spare.Forward, spare.Fallback = r.Fallback.Upstream, r.Fallback.Forward, nil
	spare.NoBudget, spare.ClientThrottling, spare.RateLimitPause, spare.Breaker, spare.Probe, spare.FaultInjection = true, false, RateLimitPause{}, BreakerFailFast, Probe{}, nil
	spare.HedgeAfter, spare.RateLimit = policy.HedgeAfter{}, RateLimit{}
	if spare.AttemptTimeout == 0 && spare.RequestTimeout == 0 {
		spare.AttemptTimeout = fallbackTimeout
	}
	return &spare
}

// ownShare is d without the part that is kept back for a fallback upstream.
func (r *routeState) ownShare(d time.Duration) time.Duration {
	if r.spare != nil {
		return d - d/fallbackTimeDivisor
	}
	return d
}

// fallBack lets the route's fallback answer a request that failed because of
// reason; a is its last attempt, nil when the next one was not sent. No when there
// is no fallback, or when it has no better response: nothing has changed then for
// the client, who gets what it would have got without.
func (x *exchange) fallBack(a *policy.Attempt, reason string) (int, policy.Outcome, bool) {
	f := x.route.Fallback
	if f == nil {
		return 0, 0, false
	}
	held := x.bufferLastResponse(a)
	if f.Status != 0 {
		x.discard()
		x.buffered.drop()
		x.endIfUnread()
		x.reason, x.fallbackKind = reason, fallbackResponse
		code, o := x.respondOwn(f.Status, contentType(f.Body), f.Body, policy.OutcomeFallback, reason)
		return code, o, true
	}
	if !held || x.exposed && !x.safe || x.wouldDropTLS(f.Upstream) {
		return 0, 0, false
	}
	x.discard()
	x.fetchBody()
	if x.clientEnd.Load() != clientPresent {
		code, o := x.abandon()
		return code, o, true
	}
	if !x.body.ended || x.replay() != policy.ReplayWhole {
		return 0, 0, false
	}
	return x.tryFallbackUpstream(reason)
}

// bufferLastResponse keeps the response of the last attempt, where there was one, until the
// fallback has a better one; no when it cannot be kept.
func (x *exchange) bufferLastResponse(a *policy.Attempt) bool {
	if a == nil || a.Cause != policy.CauseStatus || x.buffered.full && x.buffered.attempt == x.attempts {
		return true
	}
	return x.buffered.read() == policy.ReasonNone
}

// fetchBody reads the client's whole body, also where none of it was read yet.
func (x *exchange) fetchBody() {
	b := &x.body
	if b.ended || !b.keeping {
		return
	}
	if !b.started {
		b.started, b.began = true, x.now()
	}
	x.finishBody(x.respondBy(x.route.RequestTimeout))
}

// tryFallbackUpstream sends the request to the fallback upstream, once, and relays what
// comes if it is no failure. It is no attempt at the upstream and counts as none.
func (x *exchange) tryFallbackUpstream(reason string) (int, policy.Outcome, bool) {
	main, dialErr, noAttempt := x.route, x.dialErr, x.noAttemptReason
	x.route, x.noAttemptReason = main.spare, policy.ReasonNone
	defer func() { x.route, x.dialErr, x.noAttemptReason = main, dialErr, noAttempt }()
	x.deadline = x.respondBy(x.requestTimeout())
	x.spareBuffers.put(x.requestHeaders)
	x.requestHeaders = nil // it is rendered anew, as the fallback upstream is to have it
	x.lastAttempt, x.avoid, x.endpoint, x.dialErr = false, "", nil, nil
	switch x.acquirePermit(x.tick()) {
	case admitted:
	case clientLeftQueue:
		code, o := x.clientLeft()
		return code, o, true
	default:
		x.observer.FallbackFailed()
		return 0, 0, false
	}
	var a policy.Attempt
	x.attempt(&a, x.waiter.permit.Probe())
	x.attempts--
	if x.clientEnd.Load() != clientPresent {
		x.abandonPermit(policy.Abandoned)
		x.discard()
		x.attemptTraced(x.trace.attempt, &policy.Attempt{Cause: policy.CauseReset}, policy.Unknown, x.trace.peer)
		x.attemptBegan = 0
		code, o := x.abandon()
		return code, o, true
	}
	x.finishFallbackAttempt(&a)
	if a.Cause != policy.CauseStatus || x.route.Policy.Fails(&a) {
		x.discard()
		x.observer.FallbackFailed()
		return 0, 0, false
	}
	x.buffered.drop()
	x.reason, x.fallbackKind = reason, fallbackUpstream
	code, o := x.relay(policy.OutcomeFallback, reason)
	return code, o, true
}

// finishFallbackAttempt gives the place at the fallback upstream back and closes the books.
func (x *exchange) finishFallbackAttempt(a *policy.Attempt) {
	if a.Cause == policy.CauseAttemptTimeout {
		x.abandonPermit(x.timeoutEndKind())
	}
	x.releasePermit(a)
	x.lastEnd = x.now()
	x.attemptLog.attempted(step{
		began: inMicros(x.attemptBegan.Sub(x.began)), took: inMicros(x.lastEnd.Sub(x.attemptBegan)), status: int16(a.Status), cause: a.Cause,
		addr: x.avoid, dial: x.dialErrOf(a),
	})
	x.tick()
	x.attemptTraced(x.trace.attempt, a, x.route.Policy.Classify(a), x.trace.peer)
	x.attemptBegan = 0
}

// contentType is a guess from the first byte; what was written as JSON or HTML
// is meant so.
func contentType(body []byte) string {
	if len(body) > 0 {
		switch body[0] {
		case '{', '[':
			return "application/json"
		case '<':
			return "text/html; charset=utf-8"
		}
	}
	return "text/plain; charset=utf-8"
}
