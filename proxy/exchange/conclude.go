package exchange

import (
	"context"
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// conclude sends the client the last real response, or our own if there never was one.
func (x *Exchange) conclude(res *policy.Result, d policy.Decision) request.End {
	if x.sender.unmade != nil {
		return x.concludeUnsent(x.sender.unmade)
	}
	if d.Class != policy.ClassNone {
		if end, done := x.fallBack(res, reasonOf(d.Why)); done {
			return end
		}
	}
	x.w.Asks(res.RetryAfter)
	end := request.End{Outcome: x.outcomeOf(res, d), Reason: reasonOf(d.Why)}
	if end.Outcome == policy.OutcomeGaveUpNotInRetryOn {
		end.Reason = policy.ReasonNotInRetryOn.String() // the response does not carry this reason: a proxy in front may retry the status
	}
	switch {
	case x.buffered.keptOf(x.r.Attempts()), x.buffered.holds() && res.Cause != policy.CauseStatus:
		x.sender.att.Drop()
		return x.relay.buffered(&x.buffered, end, reasonOf(d.Why))
	case res.Cause == policy.CauseStatus:
		x.buffered.drop()
		return x.relay.response(end, reasonOf(d.Why))
	}
	x.sender.att.Drop()
	return x.fail(res.Cause, end.Outcome, d.Why)
}

// outcomeOf returns the outcome of a request that ends with the decision d on its last attempt, which came to res.
func (x *Exchange) outcomeOf(res *policy.Result, d policy.Decision) policy.Outcome {
	switch {
	case d.Class != policy.ClassNone:
		return policy.GaveUp(d.Why)
	case res.Status >= 500 && res.Status <= 599: // a failure that is not retried, such as 501, is no success either
		return policy.GaveUp(policy.ReasonNotInRetryOn)
	case x.report.Failed:
		return policy.OutcomeRecovered
	}
	return policy.OutcomeSuccess
}

// reasonOf returns the text for the client, or "" if there is nothing to explain.
func reasonOf(why policy.Reason) string {
	if why == policy.ReasonNone {
		return ""
	}
	return why.String()
}

// fail sends our own response if the upstream never sent one.
func (x *Exchange) fail(cause policy.Cause, o policy.Outcome, why policy.Reason) request.End {
	dial := x.sender.att.DialError()
	timedOut := dial != nil && (dial.Kind == upstream.KindTimeout || errors.Is(dial, context.DeadlineExceeded)) // the latter is a lookup's
	x.relay.endIfUnread()
	x.forbidRetry()
	return x.w.Failed(cause, timedOut, o, why)
}

// concludeUnsent ends an exchange whose next attempt is not sent.
func (x *Exchange) concludeUnsent(why *admission.Refusal) request.End {
	x.sender.returnTicket()
	if why.ClientLeft {
		return x.clientLeft()
	}
	x.w.Asks(why.RetryAfter)
	if why.CloseClient {
		x.w.Close()
	}
	if end, done := x.fallBack(nil, why.Reason); done {
		return end
	}
	return x.reject(why)
}

// reject sends the client the last real response, or one of our own if there was none.
func (x *Exchange) reject(why *admission.Refusal) request.End {
	if x.buffered.holds() {
		return x.relay.buffered(&x.buffered, request.End{Outcome: why.Outcome, Reason: why.Reason}, why.Reason)
	}
	x.relay.endIfUnread()
	if !x.w.HasRetryAfter() && why.Status == 503 {
		x.w.Asks(time.Duration(x.r.Route.UpstreamState.Admission.RetryAfter()) * time.Second)
	}
	return x.w.With(why.Status, why.Outcome, why.Reason, why.Text)
}

// clientLeft ends an exchange whose client left during a wait.
func (x *Exchange) clientLeft() request.End {
	x.r.ClientLeft()
	return x.abandon()
}

// abandon ends an exchange whose client left or sent a broken request.
func (x *Exchange) abandon() request.End {
	class := policy.NotSent
	if x.sender.att.SentSome() {
		class = policy.Unknown // the upstream may still work on it
	}
	x.sender.abandonTicket(breaker.Abandoned)
	x.sender.att.Drop()
	x.sender.att.StopUpload()
	if x.sender.att.Running() {
		x.attempts.hedge.attemptDone(&policy.Result{Cause: policy.CauseReset}, class)
	}
	x.w.Close()
	x.r.Time.Tick()
	return x.w.ClientError()
}

// concludeWait ends an exchange whose wait before the retry d ended early, because of end.
func (x *Exchange) concludeWait(res *policy.Result, d policy.Decision, end admission.WaitEnd) request.End {
	why := policy.ReasonBudgetExhausted
	switch end {
	case admission.ClientLeft:
		return x.concludeUnsent(admission.LeftClient())
	case admission.DrainBegan:
		why = policy.ReasonDraining
	}
	x.sender.returnTicket()
	return x.conclude(res, policy.Decision{Class: d.Class, Why: why})
}
