package proxy

import (
	"github.com/retryproxy/retryproxy/policy"
)

// rejectingStage is the stage of admission that rejected an attempt.
type rejectingStage uint8

const (
	rejectedByQueue rejectingStage = iota // see exchange.verdict
	rejectedByPause
	rejectedByThrottling
	rejectedByRateLimit
)

// admit asks each stage of admission in turn. admitted means that the attempt has a
// permit and is sent now.
func (x *exchange) admit(now instant) admission {
	if x.route.RateLimitPause.Kind != RateLimitPauseNone {
		in, later := x.waitOutPause(now)
		if in != admitted {
			return in
		}
		now = later
	}
	if x.attempts == 0 && x.route.upstream.throttle != nil && !x.throttlerAllows(now) { // a retry was checked before its wait
		x.rejectedBy, x.retryAfter = rejectedByThrottling, 1
		return notAdmitted
	}
	if q := x.route.rateLimit; q != nil {
		in, later := x.awaitRateLimit(q, now)
		if in != admitted {
			return in
		}
		now = later
	}
	return x.acquirePermit(now)
}

// throttlerAllows reports whether client-side throttling lets the next attempt pass.
func (x *exchange) throttlerAllows(now instant) bool {
	var pass bool
	x.throttlerAsked, pass = x.checkThrottler(now)
	return pass
}

// checkThrottler asks the upstream's throttler, if it has one. While the breaker is not
// closed, the breaker alone decides and nothing counts. asked means that the throttler
// expects the result of an attempt that it lets pass.
func (x *exchange) checkThrottler(now instant) (asked, pass bool) {
	u := x.route.upstream
	if u.throttle == nil || !u.door.guard.BreakerClosed() {
		return false, true
	}
	return true, u.throttle.Allow(x.set.server.since(now), policy.Shared().Float64())
}

// reportToThrottler reports the result of an attempt that the throttler let pass.
func (x *exchange) reportToThrottler(a *policy.Attempt) {
	if x.clientEnd.Load() != clientPresent {
		return
	}
	x.throttlerAsked = false
	if accepted, known := a.UpstreamAccepted(); known {
		x.route.upstream.throttle.Done(accepted)
	}
}

// countRetry counts the retry that is sent now. Its budget token is spent.
func (x *exchange) countRetry(d policy.Decision) {
	if x.trace.request != nil {
		x.trace.why, x.trace.wait = d.Why, d.Wait
	}
	x.hasBudgetToken = false
	x.observer.Retry(d.Why)
}

// returnBudgetToken returns the budget token of a retry that is not sent after all.
func (x *exchange) returnBudgetToken() {
	if x.hasBudgetToken {
		x.hasBudgetToken = false
		x.route.upstream.budget.GiveBack()
	}
}

// retryBlockedBy returns why a retry that the policy allows must not be made, or
// ReasonNone. It is asked before the wait, like the policy.
func (x *exchange) retryBlockedBy(a *policy.Attempt) policy.Reason {
	if x.pauseTooLong(a) {
		return policy.ReasonRetryAfterTooLong
	}
	now := x.now()
	if left := x.pauseLeft(now); left > 0 && left >= x.maxWait(now) {
		return policy.ReasonRateLimitPause
	}
	if !x.c.server.makesRetry() {
		return policy.ReasonSwitchedOff
	}
	if !x.throttlerAllows(now) {
		return policy.ReasonClientThrottled
	}
	return policy.ReasonNone
}
