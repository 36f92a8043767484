package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/permit"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// conclude gives the client the last real response, or one of our own if there never was one.
func (x *Exchange) conclude(a *policy.Attempt, d policy.Decision) (int, policy.Outcome) {
	if d.Class != policy.ClassNone {
		if code, o, done := x.fallBack(a, reasonOf(d.Why)); done {
			return code, o
		}
	}
	x.report.Reason = reasonOf(d.Why)
	outcome := x.outcomeOf(a, d)
	if outcome == policy.OutcomeGaveUpNotInRetryOn {
		x.report.Reason = policy.ReasonNotInRetryOn.String() // the response does not say so: a proxy in front may retry the status
	}
	switch {
	case x.buffered.full && (x.buffered.attempt == int32(x.r.Attempts) || a.Cause != policy.CauseStatus):
		x.sender.drop()
		return x.relay.buffered(&x.buffered, outcome, reasonOf(d.Why))
	case a.Cause == policy.CauseStatus:
		x.buffered.drop()
		return x.relay.response(outcome, reasonOf(d.Why))
	}
	x.sender.drop()
	return x.fail(a.Cause, outcome, d.Why)
}

// outcomeOf returns the outcome of a request that ends with the decision d on its last attempt a.
func (x *Exchange) outcomeOf(a *policy.Attempt, d policy.Decision) policy.Outcome {
	switch {
	case d.Class != policy.ClassNone:
		return policy.GaveUp(d.Why)
	case a.Status >= 500 && a.Status <= 599: // not a failure that is retried, such as 501, but no success either
		return policy.GaveUp(policy.ReasonNotInRetryOn)
	case x.report.Failed:
		return policy.OutcomeRecovered
	}
	return policy.OutcomeSuccess
}

// reasonOf returns the text for the client, "" if there is nothing to explain.
func reasonOf(why policy.Reason) string {
	if why == policy.ReasonNone {
		return ""
	}
	return why.String()
}

// abandon ends an exchange whose client left or sent a broken request.
func (x *Exchange) abandon() (int, policy.Outcome) {
	class := policy.NotSent
	if x.sender.att.SentSome() {
		class = policy.Unknown // the upstream may go on with it
	}
	x.sender.abandonPermit(breaker.Abandoned)
	x.sender.drop()
	x.upload.Stop()
	if x.sender.att.Running() {
		x.attempts.hedge.attemptDone(&policy.Attempt{Cause: policy.CauseReset}, class)
	}
	x.w.MustClose = true
	x.r.Time.Tick()
	return x.w.ClientError()
}

// concludeUnsent ends an exchange whose next attempt is not sent.
func (x *Exchange) concludeUnsent(in permit.Result) (int, policy.Outcome) {
	x.admit.ReturnBudgetToken()
	x.admit.ReturnRateLimitSlot()
	if in == permit.ClientLeft {
		return x.clientLeft()
	}
	t := x.admit.Rejection(in)
	x.w.RetryAfter = x.admit.RetryAfter
	if code, o, done := x.fallBack(nil, t.Reason); done {
		return code, o
	}
	return x.reject(t)
}

// reject sends the client the last real response, or one of our own if there was none.
func (x *Exchange) reject(t permit.Rejection) (int, policy.Outcome) {
	x.report.Reason = t.Reason
	if x.buffered.full {
		return x.relay.buffered(&x.buffered, t.Outcome, t.Reason)
	}
	x.relay.endIfUnread()
	if x.w.RetryAfter == 0 && t.Status == 503 {
		x.w.RetryAfter = x.r.Route.UpstreamState.Admission.RetryAfter()
	}
	return x.w.With(t.Status, t.Outcome, t.Reason, t.Text)
}

// fail sends our own response if the upstream never sent one.
func (x *Exchange) fail(cause policy.Cause, o policy.Outcome, why policy.Reason) (int, policy.Outcome) {
	if x.admit.NoAttempt != policy.ReasonNone {
		x.admit.ReturnRateLimitSlot()
		return x.w.Starved(o, why)
	}
	dial := x.sender.att.DialErr
	x.relay.endIfUnread()
	return x.w.Failed(cause, dial != nil && dial.Kind == upstream.KindTimeout, o, why)
}
