package proxy

import (
	"github.com/retryproxy/retryproxy/policy"
)

// rejectingStage is what kept an attempt from being sent.
type rejectingStage uint8

const (
	rejectedByQueue rejectingStage = iota // see exchange.verdict
	rejectedByPause
	rejectedByThrottling
	rejectedByRateLimit
)

// admit asks all that stands before an attempt, in turn. Admitted means that
// the attempt has its place and is sent now.
func (x *exchange) admit(now instant) admission {
	if x.route.RateLimitPause.Kind != RateLimitPauseNone {
		in, later := x.waitOutPause(now)
		if in != admitted {
			return in
		}
		now = later
	}
	if x.attempts == 0 && x.route.upstream.throttle != nil && !x.throttlerAllows(now) { // a retry was asked for before its wait
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

// throttlerAllows asks the upstream's throttle, where it has one, whether the next attempt
// may be sent.
func (x *exchange) throttlerAllows(now instant) bool {
	var pass bool
	x.throttlerAsked, pass = x.checkThrottler(now)
	return pass
}

// checkThrottler asks the upstream's throttle, where it has one. While the breaker is
// not closed, that alone decides and nothing counts. asked: it waits to hear what
// becomes of an attempt that it lets pass.
func (x *exchange) checkThrottler(now instant) (asked, pass bool) {
	u := x.route.upstream
	if u.throttle == nil || !u.door.guard.BreakerClosed() {
		return false, true
	}
	return true, u.throttle.Allow(x.set.server.since(now), policy.Shared().Float64())
}

// reportToThrottler tells the throttle what became of an attempt. Called when it was asked for that.
func (x *exchange) reportToThrottler(a *policy.Attempt) {
	if x.clientEnd.Load() != clientPresent {
		return
	}
	x.throttlerAsked = false
	if accepted, known := a.UpstreamAccepted(); known {
		x.route.upstream.throttle.Done(accepted)
	}
}

// countRetry counts the retry that is sent now. What was taken for it is used.
func (x *exchange) countRetry(d policy.Decision) {
	if x.trace.request != nil {
		x.trace.why, x.trace.wait = d.Why, d.Wait
	}
	x.hasBudgetToken = false
	x.observer.Retry(d.Why)
}

// returnBudgetToken returns the budget's token of a retry that is not sent after all.
func (x *exchange) returnBudgetToken() {
	if x.hasBudgetToken {
		x.hasBudgetToken = false
		x.route.upstream.budget.GiveBack()
	}
}

// retryBlockedBy is what speaks against a retry that the policy would make, beyond
// what the policy knows. Like all of it, it is asked before the wait.
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
