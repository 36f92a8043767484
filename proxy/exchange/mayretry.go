package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// retryBlockedBy returns why a retry that the policy allows must not be made, or ReasonNone. It is
// called before the wait, like the policy.
func (x *Exchange) retryBlockedBy(res *policy.Result) policy.Reason {
	if x.r.PauseTooLong(res) {
		return policy.ReasonRetryAfterTooLong
	}
	now := x.r.Time.Now()
	if left := x.r.PauseLeft(now); left > 0 && left >= x.r.Time.MaxWait(now) {
		return policy.ReasonRateLimitPause
	}
	if !x.r.Process.MakesRetry() {
		return policy.ReasonSwitchedOff
	}
	return policy.ReasonNone
}

// dryRun counts the retry that d would make, once per request, and makes none. If d has no retry, or
// something else forbids it, the reason stays.
func (x *Exchange) dryRun(res *policy.Result, d policy.Decision) policy.Decision {
	why := policy.ReasonDryRun
	if !x.report.HasCountedDryRun() {
		if !d.Retry {
			return d
		}
		why = x.wouldNot(res)
	}
	if why == policy.ReasonDryRun {
		x.report.CountDryRun(d.Why)
	}
	return policy.Decision{Class: d.Class, Why: why}
}

// wouldNot returns what else would forbid the retry, or ReasonDryRun if nothing would. It does not
// buffer the response, so a response without a length counts as one that fits.
func (x *Exchange) wouldNot(res *policy.Result) policy.Reason {
	f := x.sender.att.Body().Framing()
	if res.Cause == policy.CauseStatus && f.Kind == http1.BodyLength && f.Length > x.r.Route.ResponseBufferBytes {
		return policy.ReasonResponseTooLarge
	}
	if b := x.r.Route.RetryBudget(); b != nil && !b.TryRetry(x.r.Process.Clock.Since(x.r.Time.Clock)) {
		return policy.ReasonBudgetExhausted
	}
	return policy.ReasonDryRun
}

// When an upstream is killed, all its requests in flight fail at once. The first failures find the
// breaker closed and the budget soon empty. Such a request waits a moment for the breaker to open.
// If it opens, the request is retried outside the budget: it queues with all others, and the
// breaker paces them.

// mayRetryThroughBreaker waits for the breaker after the request's connection was lost and the
// budget had no token. It reports whether the breaker opened and the request is retried through
// its queue. d is then that retry.
func (x *Exchange) mayRetryThroughBreaker(res *policy.Result, d *policy.Decision) bool {
	if !d.LacksToken() || res.Cause != policy.CauseReset || !x.r.Route.Terms.Queues {
		return false
	}
	began := x.r.Time.Tick()
	end := x.admitter.AwaitBreaker(x.r.Route.Terms.Queue, x.r.Time.Deadline)
	x.report.Queued(began)
	switch {
	case end == admission.DrainBegan:
		*d = policy.Decision{Class: d.Class, Why: policy.ReasonDraining}
		return false
	case end != admission.ClientLeft && !x.r.RetryWaitsInQueue(): // pause detects a client that left
		return false
	}
	*d = policy.Decision{Class: d.Class, Retry: true, Why: policy.ReasonReset}
	return true
}
