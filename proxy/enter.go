package proxy

import (
	"github.com/retryproxy/retryproxy/policy"
)

// barrier is what kept an attempt from being sent.
type barrier uint8

const (
	barredByDoor barrier = iota // see exchange.turnedBy
	barredByRateLimitPause
	barredByThrottle
	barredByRateLimit
)

// enter asks all that stands before an attempt, in turn. Admitted means that
// the attempt has its place and is sent now.
func (x *exchange) enter(now instant) admission {
	if x.route.RateLimitPause.Kind != RateLimitPauseNone {
		in, later := x.sitOut(now)
		if in != admitted {
			return in
		}
		now = later
	}
	if x.attempts == 0 && x.route.upstream.throttle != nil && !x.ask(now) { // a retry was asked for before its wait
		x.barred, x.retryAfter = barredByThrottle, 1
		return turnedAway
	}
	if q := x.route.rateLimit; q != nil {
		in, later := x.awaitSlot(q, now)
		if in != admitted {
			return in
		}
		now = later
	}
	return x.admit(now)
}

// ask asks the upstream's throttle, where it has one, whether the next attempt
// may be sent.
func (x *exchange) ask(now instant) bool {
	var pass bool
	x.asked, pass = x.askThrottle(now)
	return pass
}

// askThrottle asks the upstream's throttle, where it has one. While the breaker is
// not open, that alone decides and nothing counts. asked: it waits to hear what
// becomes of an attempt that it lets pass.
func (x *exchange) askThrottle(now instant) (asked, pass bool) {
	u := x.route.upstream
	if u.throttle == nil || !u.door.guard.BreakerClosed() {
		return false, true
	}
	return true, u.throttle.Allow(x.set.server.since(now), policy.Shared().Float64())
}

// answered tells the throttle what became of an attempt. Called when it was asked for that.
func (x *exchange) answered(a *policy.Attempt) {
	if x.clientEnd.Load() != clientStays {
		return
	}
	x.asked = false
	if accepted, known := a.UpstreamAccepted(); known {
		x.route.upstream.throttle.Done(accepted)
	}
}

// retrying counts the retry that is sent now. What was taken for it is used.
func (x *exchange) retrying(d policy.Decision) {
	if x.trace.request != nil {
		x.trace.why, x.trace.wait = d.Why, d.Wait
	}
	x.token = false
	x.observer.Retry(d.Why)
}

// giveBack returns the budget's token of a retry that is not sent after all.
func (x *exchange) giveBack() {
	if x.token {
		x.token = false
		x.route.upstream.budget.GiveBack()
	}
}

// against is what speaks against a retry that the policy would make, beyond
// what the policy knows. Like all of it, it is asked before the wait.
func (x *exchange) against(a *policy.Attempt) policy.Reason {
	if x.pauseTooLong(a) {
		return policy.ReasonRetryAfterTooLong
	}
	now := x.now()
	if left := x.rateLimitPauseLeft(now); left > 0 && left >= x.waitRoom(now) {
		return policy.ReasonRateLimitPause
	}
	if !x.c.server.makesRetry() {
		return policy.ReasonSwitchedOff
	}
	if !x.ask(now) {
		return policy.ReasonClientThrottled
	}
	return policy.ReasonNone
}
