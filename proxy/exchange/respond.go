package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// fail sends our own response if the upstream never sent one.
func (x *Exchange) fail(cause policy.Cause, o policy.Outcome, why policy.Reason) (int, policy.Outcome) {
	if x.adm.noAttemptReason != policy.ReasonNone {
		return x.failStarved(o, why)
	}
	status := 502
	if cause == policy.CauseAttemptTimeout || x.att.DialErr != nil && x.att.DialErr.Kind == upstream.KindTimeout {
		status = 504
	}
	x.endIfUnread()
	return x.w.respondWith(status, o, why.String(), "the upstream "+explainCause(cause))
}

// failStarved is fail where no descriptor was found for the upstream's connection; the
// client's own is given back, and its slot in a rate limit.
func (x *Exchange) failStarved(o policy.Outcome, why policy.Reason) (int, policy.Outcome) {
	x.adm.returnRateLimitSlot()
	x.w.mustClose, x.w.retryAfter = true, 1
	return x.w.respondWith(503, o, why.String(), "no file descriptor is left for a connection to the upstream")
}

func explainCause(c policy.Cause) string {
	switch c {
	case policy.CauseDial, policy.CauseTLS:
		return "could not be reached"
	case policy.CauseAttemptTimeout:
		return "did not answer in time"
	case policy.CauseMalformed:
		return "sent a response that is not valid HTTP"
	}
	return "closed the connection before it answered"
}

// refuse responds with the rule that was broken, for people, and its label.
func (x *Exchange) refuse(why http1.Refusal) (int, policy.Outcome) {
	x.w.mustClose = true
	x.countRefusal(why)
	return x.w.respondWith(why.Status(), policy.OutcomeRefused, why.String(), why.Explain())
}

func (x *Exchange) countRefusal(why http1.Refusal) {
	if why == http1.RefusalNone {
		return
	}
	x.report.Reason = why.String()
	if x.Settings.Refused != nil {
		x.Settings.Refused(why)
	}
}

// respondToClientError sends our own response if the client's side ended early, unless it left.
func (x *Exchange) respondToClientError() (int, policy.Outcome) {
	switch o := x.clientOutcome(); {
	case o == policy.OutcomeClientGone:
		x.w.mustReset = true
		return 0, o
	case o == policy.OutcomeRequestTimeout:
		return x.respondError(408, o, "request_timeout")
	case x.BodyRefusal != http1.RefusalNone:
		return x.respondError(x.BodyRefusal.Status(), o, x.BodyRefusal.String())
	default:
		return x.respondError(400, o, "request_broken")
	}
}

// respondError sends our own response, and notes the reason for the logs.
func (x *Exchange) respondError(status int, o policy.Outcome, reason string) (int, policy.Outcome) {
	x.report.Reason = reason
	return x.w.respondError(status, o, reason)
}

// clientOutcome returns the outcome of a request whose client's side ended early, and counts a
// refusal.
func (x *Exchange) clientOutcome() policy.Outcome {
	switch x.ClientEnd.Load() {
	case request.ClientBodyBroken:
		x.countRefusal(x.BodyRefusal)
		return policy.OutcomeRequestBroken
	case request.ClientBodyTooLarge:
		x.countRefusal(x.BodyRefusal)
		return policy.OutcomeRefused
	case request.ClientTooSlow:
		return policy.OutcomeRequestTimeout
	}
	return policy.OutcomeClientGone
}

// allowed are the methods in the Allow header of our own responses.
const allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// respondToMaxForwards responds as the final recipient. OPTIONS gets an empty response. TRACE is not
// allowed, because its echo could show headers that the client must not see.
func (x *Exchange) respondToMaxForwards() (int, policy.Outcome) {
	x.w.mustClose = x.w.mustClose || !x.HTTP.Body.Empty() || x.Process.Draining.Load()
	if string(x.HTTP.Method) == "TRACE" {
		return x.respondError(405, policy.OutcomeRefused, "max_forwards")
	}
	resp := newResponse(200, http1.NewHeader("Allow", allowed), http1.NewHeader("Content-Length", "0"))
	return x.w.writeResponse(resp, nil, policy.OutcomeSuccess, "")
}
