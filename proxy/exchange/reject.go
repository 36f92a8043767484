package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// rejection describes what the client of a request gets whose next attempt is not sent.
type rejection struct {
	status  int // of our own response, where there was no real one
	outcome policy.Outcome
	reason  string
	text    string
}

// notTaking is the error text of an upstream whose queue admits nothing.
const notTaking = "the upstream is not taking requests"

// gaveUp returns the rejection for a reason that has an outcome of its own.
func gaveUp(status int, why policy.Reason, text string) rejection {
	return rejection{status, policy.GaveUp(why), why.String(), text}
}

// concludeUnsent ends an exchange whose next attempt is not sent.
func (x *Exchange) concludeUnsent(in admissionResult) (int, policy.Outcome) {
	x.adm.returnBudgetToken()
	x.adm.returnRateLimitSlot()
	if in == clientLeftQueue {
		return x.clientLeft()
	}
	t := x.adm.rejection(in)
	x.w.retryAfter = x.adm.retryAfter
	if code, o, done := x.fallBack(nil, t.reason); done {
		return code, o
	}
	return x.reject(t)
}

// rejection returns why the attempt was not sent.
func (a *admitter) rejection(in admissionResult) rejection {
	switch in {
	case drainEndedWait:
		return gaveUp(503, policy.ReasonDraining, notTaking)
	case deadlinePassed:
		return gaveUp(504, policy.ReasonDeadline, "the time for the request was over before it could be sent")
	}
	switch a.rejectedBy {
	case rejectedByPause:
		t := gaveUp(429, policy.ReasonRateLimitPause, "the upstream asked for a pause that is not over")
		if a.r.Attempts == 0 {
			t.outcome = policy.OutcomeRateLimitPause
		}
		return t
	case rejectedByRateLimit:
		t := gaveUp(429, policy.ReasonRateLimited, "the rate limit of the upstream is used up")
		if a.r.Attempts == 0 {
			t.outcome = policy.OutcomeRateLimited
		}
		return t
	case rejectedByThrottling:
		return rejection{503, policy.OutcomeClientThrottled, policy.ReasonClientThrottled.String(), "the upstream rejects nearly all requests"}
	}
	return rejection{503, a.queueOutcome(), a.queueOutcome().String(), notTaking}
}

// queueOutcome returns the outcome of a request that got no permit from the upstream's queue.
func (a *admitter) queueOutcome() policy.Outcome {
	switch {
	case a.verdict == breaker.VerdictAtLimit:
		return policy.OutcomeOverloaded
	case a.droppedFromQueue:
		return policy.OutcomeQueueDropped
	case a.r.Route.Breaker == settings.BreakerQueue:
		return policy.OutcomeQueueTimeout
	}
	return policy.OutcomeFailFast
}

// reject sends the client the last real response, or one of our own if there was none.
func (x *Exchange) reject(t rejection) (int, policy.Outcome) {
	x.report.Reason = t.reason
	if x.buffered.full {
		return x.relayBuffered(t.outcome, t.reason)
	}
	x.endIfUnread()
	if x.w.retryAfter == 0 && t.status == 503 {
		x.w.retryAfter = x.Route.UpstreamState.Admission.RetryAfter()
	}
	return x.w.respondWith(t.status, t.outcome, t.reason, t.text)
}
