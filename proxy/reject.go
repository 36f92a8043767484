package proxy

import "github.com/retryproxy/retryproxy/policy"

// rejection is what becomes of a request whose next attempt is not sent.
type rejection struct {
	status  int // of our own response, where there was no real one
	outcome policy.Outcome
	reason  string
	text    string
}

// notTaking is what is said of an upstream whose queue is shut.
const notTaking = "the upstream is not taking requests"

// gaveUp is for a why that has an outcome of its own.
func gaveUp(status int, why policy.Reason, text string) rejection {
	return rejection{status, policy.GaveUp(why), why.String(), text}
}

// concludeUnsent ends an exchange whose next attempt is not sent.
func (x *exchange) concludeUnsent(in admission) (int, policy.Outcome) {
	x.returnBudgetToken()
	x.returnRateLimitSlot()
	if in == clientLeftQueue {
		return x.clientLeft()
	}
	t := x.rejection(in)
	if code, o, done := x.fallBack(nil, t.reason); done {
		return code, o
	}
	return x.reject(t)
}

// rejection says why the attempt was not sent.
func (x *exchange) rejection(in admission) rejection {
	switch in {
	case drainEndedWait:
		return gaveUp(503, policy.ReasonDraining, notTaking)
	case deadlinePassed:
		return gaveUp(504, policy.ReasonDeadline, "the time for the request was over before it could be sent")
	}
	switch x.rejectedBy {
	case rejectedByPause:
		t := gaveUp(429, policy.ReasonRateLimitPause, "the upstream asked for a pause that is not over")
		if x.attempts == 0 {
			t.outcome = policy.OutcomeRateLimitPause
		}
		return t
	case rejectedByRateLimit:
		t := gaveUp(429, policy.ReasonRateLimited, "the rate limit of the upstream is used up")
		if x.attempts == 0 {
			t.outcome = policy.OutcomeRateLimited
		}
		return t
	case rejectedByThrottling:
		return rejection{503, policy.OutcomeClientThrottled, policy.ReasonClientThrottled.String(), "the upstream rejects nearly all requests"}
	}
	return rejection{503, x.queueOutcome(), x.queueOutcome().String(), notTaking}
}

// queueOutcome is that of a request which got no place at the upstream's queue.
func (x *exchange) queueOutcome() policy.Outcome {
	switch {
	case x.verdict == policy.VerdictAtLimit:
		return policy.OutcomeOverloaded
	case x.droppedFromQueue:
		return policy.OutcomeQueueDropped
	case x.route.Breaker == BreakerQueue:
		return policy.OutcomeQueueTimeout
	}
	return policy.OutcomeFailFast
}

// reject gives the last real response, else our own.
func (x *exchange) reject(t rejection) (int, policy.Outcome) {
	x.reason = t.reason
	if x.buffered.full {
		return x.relayBuffered(t.outcome, t.reason)
	}
	x.endIfUnread()
	if x.retryAfter == 0 && t.status == 503 {
		x.retryAfter = x.route.upstream.door.retryAfter()
	}
	return x.respondWith(t.status, t.outcome, t.reason, t.text)
}
