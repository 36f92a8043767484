package proxy

import "github.com/retryproxy/retryproxy/policy"

// turnedOut is what becomes of a request whose next attempt is not sent.
type turnedOut struct {
	status  int // of our own response, where there was no real one
	outcome policy.Outcome
	reason  string
	text    string
}

// notTaking is what is said of an upstream whose door is shut.
const notTaking = "the upstream is not taking requests"

// gaveUp is for a why that has an outcome of its own.
func gaveUp(status int, why policy.Reason, text string) turnedOut {
	return turnedOut{status, policy.GaveUp(why), why.String(), text}
}

// stayOut ends an exchange whose next attempt is not sent.
func (x *exchange) stayOut(in admission) (int, policy.Outcome) {
	x.giveBack()
	x.dropSlot()
	if in == leftWaiting {
		return x.leave()
	}
	t := x.turnedOut(in)
	if code, o, done := x.fallBack(nil, t.reason); done {
		return code, o
	}
	return x.turnAway(t)
}

// turnedOut says why the attempt was not sent.
func (x *exchange) turnedOut(in admission) turnedOut {
	switch in {
	case drainedWaiting:
		return gaveUp(503, policy.ReasonDraining, notTaking)
	case tooLate:
		return gaveUp(504, policy.ReasonDeadline, "the time for the request was over before it could be sent")
	}
	switch x.barred {
	case barredByRateLimitPause:
		t := gaveUp(429, policy.ReasonRateLimitPause, "the upstream asked for a pause that is not over")
		if x.attempts == 0 {
			t.outcome = policy.OutcomeRateLimitPause
		}
		return t
	case barredByRateLimit:
		t := gaveUp(429, policy.ReasonRateLimited, "the rate limit of the upstream is used up")
		if x.attempts == 0 {
			t.outcome = policy.OutcomeRateLimited
		}
		return t
	case barredByThrottle:
		return turnedOut{503, policy.OutcomeClientThrottled, policy.ReasonClientThrottled.String(), "the upstream rejects nearly all requests"}
	}
	return turnedOut{503, x.doorOutcome(), x.doorOutcome().String(), notTaking}
}

// doorOutcome is that of a request which got no place at the upstream's door.
func (x *exchange) doorOutcome() policy.Outcome {
	switch {
	case x.turnedBy == policy.VerdictAtLimit:
		return policy.OutcomeOverloaded
	case x.dropped:
		return policy.OutcomeQueueDropped
	case x.route.BreakerMode == BreakerQueue:
		return policy.OutcomeQueueTimeout
	}
	return policy.OutcomeFailFast
}

// turnAway gives the last real response, else our own.
func (x *exchange) turnAway(t turnedOut) (int, policy.Outcome) {
	x.reason = t.reason
	if x.held.full {
		return x.relayHeld(t.outcome, t.reason)
	}
	x.endIfUnread()
	if x.retryAfter == 0 && t.status == 503 {
		x.retryAfter = x.route.upstream.door.retryAfter()
	}
	return x.answerWith(t.status, t.outcome, t.reason, t.text)
}
