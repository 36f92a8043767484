package permit

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// CountRetry counts the retry that is sent now and spends its budget token.
func (ad *Admitter) CountRetry(again policy.Decision) {
	if ad.report.Trace.Request != nil {
		ad.report.Trace.Why, ad.report.Trace.Wait = again.Why, again.Wait
	}
	ad.HasBudgetToken = false
	ad.report.Observer.Retry(again.Why)
}

// ReturnBudgetToken returns the budget token of a retry that is not sent.
func (ad *Admitter) ReturnBudgetToken() {
	if ad.HasBudgetToken {
		ad.HasBudgetToken = false
		ad.r.Route.UpstreamState.RetryBudget.GiveBack()
	}
}

// AwaitBudgetToken waits for the budget token of a retry, in the order of all such retries of the
// upstream. It returns WaitedOut with the token, and NoToken if there was none within the time left.
func (ad *Admitter) AwaitBudgetToken() WaitEnd {
	q, began := ad.r.Route.UpstreamState.BudgetQueue, ad.r.Time.Tick()
	ad.waiter.ExpectedAt = 0
	until := began.Add(ad.r.Time.MaxWait(began))
	decision, ticket := q.Enter(&ad.waiter, ad.r.Process.Clock.Since(until))
	end := WaitedOut
	if decision == admission.Wait {
		end = ad.Await(until, &ad.waiter)
		ad.report.Queued(began)
		decision = q.Quit(&ad.waiter, ticket)
	}
	ad.HasBudgetToken = decision == admission.Admit
	switch {
	case end == Left, end == DrainBegan:
		return end
	case ad.HasBudgetToken:
		return WaitedOut
	}
	return NoToken
}

// BackOff waits for the time of d.
func (ad *Admitter) BackOff(d policy.Decision) WaitEnd {
	ad.report.Observer.WaitBegan()
	began := ad.r.Time.Tick()
	end := ad.Await(began.Add(d.Wait), nil)
	ad.report.Observer.WaitEnded(ad.r.Time.Tick().Sub(began))
	ad.report.Waited(d.Why.String(), began)
	return end
}

// RetryBlockedBy returns why a retry that the policy allows must not be made, or ReasonNone. It is
// called before the wait, like the policy.
func (ad *Admitter) RetryBlockedBy(res *policy.Result) policy.Reason {
	if ad.r.PauseTooLong(res) {
		return policy.ReasonRetryAfterTooLong
	}
	now := ad.r.Time.Now()
	if left := ad.r.PauseLeft(now); left > 0 && left >= ad.r.Time.MaxWait(now) {
		return policy.ReasonRateLimitPause
	}
	if !ad.r.Process.MakesRetry() {
		return policy.ReasonSwitchedOff
	}
	return policy.ReasonNone
}

// HedgeAllowed checks what RetryBlockedBy checks, and two conditions for hedges alone: the breaker
// is closed, and no rate-limit pause is running.
func (ad *Admitter) HedgeAllowed(now clock.Instant) bool {
	u := ad.r.Route.UpstreamState
	return u.Admission.Guard.BreakerClosed() && ad.r.PauseLeft(now) <= 0 && ad.r.Process.MakesRetry()
}

// DryRun counts the retry that again would make, once per request, and makes none. If again has no
// retry, or something else forbids it, the reason stays.
func (ad *Admitter) DryRun(a *attempt.Attempt, res *policy.Result, again policy.Decision) policy.Decision {
	why := policy.ReasonDryRun
	if !ad.report.HasCountedDryRun() {
		if !again.Retry {
			return again
		}
		why = ad.wouldNot(a, res)
	}
	if why == policy.ReasonDryRun {
		ad.report.CountDryRun(again.Why)
	}
	return policy.Decision{Class: again.Class, Why: why}
}

// wouldNot returns what else would forbid the retry, or ReasonDryRun if nothing would. It does not
// buffer the response, so a response without a length counts as one that fits.
func (ad *Admitter) wouldNot(a *attempt.Attempt, res *policy.Result) policy.Reason {
	f := a.Body().Framing()
	if res.Cause == policy.CauseStatus && f.Kind == http1.BodyLength && f.Length > ad.r.Route.ResponseBufferBytes {
		return policy.ReasonResponseTooLarge
	}
	if b := ad.r.Route.RetryBudget(); b != nil && !b.TryRetry(ad.r.Process.Clock.Since(ad.r.Time.Clock)) {
		return policy.ReasonBudgetExhausted
	}
	return policy.ReasonDryRun
}

// When an upstream is killed, all its requests in flight fail at once. The first failures find the
// breaker closed and the budget soon empty. Such a request waits a moment for the breaker to open.
// If it opens, the request is retried outside the budget: it queues with all others, and the
// breaker paces them.

// MayRetryThroughBreaker waits for the breaker after the request's connection was lost and the
// budget had no token. It reports whether the breaker opened and the request is retried through
// its queue. again is then that retry.
func (ad *Admitter) MayRetryThroughBreaker(res *policy.Result, again *policy.Decision) bool {
	if !again.LacksToken() || res.Cause != policy.CauseReset || ad.r.Route.Breaker != settings.BreakerQueue {
		return false
	}
	began := ad.r.Time.Tick()
	end := ad.awaitBreaker()
	ad.report.Queued(began)
	switch {
	case end == DrainBegan:
		*again = policy.Decision{Class: again.Class, Why: policy.ReasonDraining}
		return false
	case end != Left && !ad.r.RetryWaitsInQueue(): // pause detects a client that left
		return false
	}
	*again = policy.Decision{Class: again.Class, Retry: true, Why: policy.ReasonReset}
	return true
}
