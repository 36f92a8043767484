package permit

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Rejection describes what the client of a request gets whose next attempt is not sent.
type Rejection struct {
	Status  int // of our own response, where there was no real one
	Outcome policy.Outcome
	Reason  string
	Text    string
}

// notTaking is the error text of an upstream whose queue admits nothing.
const notTaking = "the upstream is not taking requests"

// gaveUp returns the Rejection for a reason that has an outcome of its own.
func gaveUp(status int, why policy.Reason, text string) Rejection {
	return Rejection{status, policy.GaveUp(why), why.String(), text}
}

// Rejection returns why the attempt was not sent.
func (ad *Admitter) Rejection(in Result) Rejection {
	switch in {
	case DrainEnded:
		return gaveUp(503, policy.ReasonDraining, notTaking)
	case DeadlinePassed:
		return gaveUp(504, policy.ReasonDeadline, "the time for the request was over before it could be sent")
	}
	switch ad.rejectedBy {
	case rejectedByPause:
		t := gaveUp(429, policy.ReasonRateLimitPause, "the upstream asked for a pause that is not over")
		if ad.r.Attempts == 0 {
			t.Outcome = policy.OutcomeRateLimitPause
		}
		return t
	case rejectedByRateLimit:
		t := gaveUp(429, policy.ReasonRateLimited, "the rate limit of the upstream is used up")
		if ad.r.Attempts == 0 {
			t.Outcome = policy.OutcomeRateLimited
		}
		return t
	case rejectedByThrottling:
		return Rejection{503, policy.OutcomeClientThrottled, policy.ReasonClientThrottled.String(), "the upstream rejects nearly all requests"}
	}
	return Rejection{503, ad.queueOutcome(), ad.queueOutcome().String(), notTaking}
}

// queueOutcome returns the outcome of a request that got no permit from the upstream's queue.
func (ad *Admitter) queueOutcome() policy.Outcome {
	switch {
	case ad.verdict == breaker.VerdictAtLimit:
		return policy.OutcomeOverloaded
	case ad.droppedFromQueue:
		return policy.OutcomeQueueDropped
	case ad.r.Route.Breaker == settings.BreakerQueue:
		return policy.OutcomeQueueTimeout
	}
	return policy.OutcomeFailFast
}
