package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// rejectingStage is the stage of admission that rejected an attempt.
type rejectingStage uint8

const (
	rejectedByQueue rejectingStage = iota // see exchange.verdict
	rejectedByPause
	rejectedByThrottling
	rejectedByRateLimit
)

// admitter gets the attempts of a request admitted, and returns their permits. It knows what the
// request holds at each stage of admission.
type admitter struct {
	*current // the attempt to admit, or the running one
	x        *Exchange
	waiter   admission.Waiter // its place in a queue

	requestAdmission
}

// requestAdmission is how far a request has come in admission. The zero value is that of a request
// that has just begun.
type requestAdmission struct {
	rateLimitSlot    *admission.RateLimitQueue // a slot of which is taken for an attempt that is not sent yet
	queueUntil       clock.Instant             // end of all waiting at a breaker; zero: not begun
	retryAfter       int                       // when the client may come again, in seconds; 0: it is not known
	noAttemptReason  policy.Reason             // why the attempt found no descriptor for its connection; none: it was made
	rejectedBy       rejectingStage
	verdict          breaker.Verdict // of the breaker, on the last attempt that it did not admit at once
	hasBudgetToken   bool            // a token of the budget is taken for a retry that is not sent yet
	droppedFromQueue bool            // from a full queue
}

// admit asks each stage of admission in turn. admitted means that the attempt has a
// permit and is sent now.
func (a *admitter) admit(now clock.Instant) admissionResult {
	if a.r.Route.RateLimitPause.Kind != settings.RateLimitPauseNone {
		in, later := a.waitOutPause(now)
		if in != admitted {
			return in
		}
		now = later
	}
	if a.r.Attempts == 0 && a.r.Route.UpstreamState.Throttler != nil && !a.throttlerAllows(now) { // a retry was checked before its wait
		a.rejectedBy, a.retryAfter = rejectedByThrottling, 1
		return notAdmitted
	}
	if q := a.r.Route.RateLimits; q != nil {
		in, later := a.awaitRateLimit(q, now)
		if in != admitted {
			return in
		}
		now = later
	}
	return a.acquirePermit(now)
}

// throttlerAllows reports whether client-side throttling lets the next attempt pass.
func (a *admitter) throttlerAllows(now clock.Instant) bool {
	var pass bool
	a.att.Throttled, pass = a.checkThrottler(now)
	return pass
}

// checkThrottler asks the upstream's throttler, if it has one. While the breaker is not
// closed, the breaker alone decides and nothing counts. asked means that the throttler
// expects the result of an attempt that it lets pass.
func (a *admitter) checkThrottler(now clock.Instant) (asked, pass bool) {
	u := a.r.Route.UpstreamState
	if u.Throttler == nil || !u.Admission.Guard.BreakerClosed() {
		return false, true
	}
	return true, u.Throttler.Allow(a.r.Process.Clock.Since(now), backoff.Shared().Float64())
}

// countRetry counts the retry that is sent now. Its budget token is spent.
func (a *admitter) countRetry(d policy.Decision) {
	if a.report.Trace.Request != nil {
		a.report.Trace.Why, a.report.Trace.Wait = d.Why, d.Wait
	}
	a.hasBudgetToken = false
	a.report.Observer.Retry(d.Why)
}

// returnBudgetToken returns the budget token of a retry that is not sent after all.
func (a *admitter) returnBudgetToken() {
	if a.hasBudgetToken {
		a.hasBudgetToken = false
		a.r.Route.UpstreamState.RetryBudget.GiveBack()
	}
}

// retryBlockedBy returns why a retry that the policy allows must not be made, or
// ReasonNone. It is asked before the wait, like the policy.
func (a *admitter) retryBlockedBy(res *policy.Attempt) policy.Reason {
	if a.r.PauseTooLong(res) {
		return policy.ReasonRetryAfterTooLong
	}
	now := a.r.Now()
	if left := a.r.PauseLeft(now); left > 0 && left >= a.r.MaxWait(now) {
		return policy.ReasonRateLimitPause
	}
	if !a.r.Process.MakesRetry() {
		return policy.ReasonSwitchedOff
	}
	if !a.throttlerAllows(now) {
		return policy.ReasonClientThrottled
	}
	return policy.ReasonNone
}
