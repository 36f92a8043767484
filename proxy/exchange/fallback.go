package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/response"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// fallBack sends a request that failed because of reason to the route's fallbacks. a is the result
// of its last attempt, or nil if the next one was not sent. It reports false if there is no
// fallback or none has a better response: the client then gets what it would have got without a
// fallback.
func (x *Exchange) fallBack(res *policy.Result, reason string) (end request.End, done bool) {
	if len(x.r.Route.Fallbacks) == 0 {
		return end, false
	}
	if x.buffered.readLast(res) {
		if end, done = x.askFallbacks(res, reason); done {
			return end, true
		}
	}
	f := x.r.Route.OwnResponse()
	if f == nil {
		return end, false
	}
	x.sender.att.Abandon()
	x.buffered.drop()
	x.relay.endIfUnread()
	x.w.InPlaceOfUpstream(response.FallbackResponse)
	return x.w.Own(f.Status, contentType(f.Body), f.Body, policy.OutcomeFallback, reason), true
}

// askFallbacks tries one fallback upstream after the other until one has a better response than a. If the
// request may have been processed and is not safe to repeat, no further fallback gets it.
func (x *Exchange) askFallbacks(res *policy.Result, reason string) (end request.End, done bool) {
	prepared := false
	for _, to := range x.r.Route.FallbackRoutes {
		switch {
		case x.report.Exposed && !x.r.IsSafe():
			return end, false
		case x.r.WouldDropTLS(to.Upstream), x.r.AccountLeft(to, x.r.Time.Clock) > 0:
			continue
		case !prepared:
			x.buffered.leave(res, &x.attempts.stream)
			x.r.FetchBody()
			prepared = true
		}
		if x.r.ClientEnd() != request.ClientPresent {
			return x.abandon(), true
		}
		if !x.r.Body.Ended() || x.sender.replay() != policy.ReplayWhole {
			return end, false
		}
		if end, done = x.askFallback(to, reason); done {
			return end, true
		}
	}
	return end, false
}

// askFallback sends the request once to a fallback upstream, and relays the response if it is no
// failure. This send does not count as an attempt.
func (x *Exchange) askFallback(to *settings.RouteState, reason string) (end request.End, done bool) {
	last, unmade := x.sender.att, x.sender.unmade
	x.sender.redirect(to, x.sender.env.New())
	x.sender.unmade = nil
	x.r.Time.Restart()
	switch why := x.sender.admit(x.r.Time.Tick()); {
	case why == nil:
	case why.ClientLeft:
		return x.clientLeft(), true
	default:
		return x.fallbackFailed(last, unmade)
	}
	var res policy.Result
	x.attempts.begin(x.r.Attempts() + 1)
	x.attempts.make(&res, x.sender.ticket.IsProbe())
	if !x.r.ClientStaysOn() {
		x.sender.abandonTicket(breaker.Abandoned)
		x.sender.att.Abandon()
		x.report.EndSpan(x.sender.att, &policy.Result{Cause: policy.CauseReset}, policy.Unknown)
		return x.abandon(), true
	}
	if usedUp := x.finishFallbackAttempt(&res); usedUp || !x.r.Good(&res) {
		x.sender.att.Abandon()
		x.forbidRetry()
		return x.fallbackFailed(last, unmade)
	}
	x.buffered.drop()
	x.w.InPlaceOfUpstream(response.FallbackUpstream)
	return x.relay.response(request.End{Outcome: policy.OutcomeFallback, Reason: reason}, reason), true
}

// fallbackFailed counts a fallback upstream that had no better response. It restores the last
// attempt at the upstream, whose result the client gets.
func (x *Exchange) fallbackFailed(last *attempt.Attempt, unmade *admission.Refusal) (end request.End, done bool) {
	x.report.FallbackFailed()
	x.sender.redirect(x.r.Route, last)
	x.sender.unmade = unmade
	return end, false
}

// finishFallbackAttempt settles the ticket at the fallback upstream and records the attempt. It reports
// whether the account there is used up, so that the upstream did not do the work.
func (x *Exchange) finishFallbackAttempt(res *policy.Result) (usedUp bool) {
	if res.Cause == policy.CauseAttemptTimeout {
		x.sender.abandonTicket(x.r.Time.TimeoutEndKind())
	}
	x.sender.release(res)
	class := x.r.Route.Policy.Classify(res)
	if usedUp = res.Cause == policy.CauseStatus && !x.r.GRPC && (account{at: &x.attempts}).isUsedUp(res); usedUp {
		class = policy.Rejected
	}
	x.report.RecordFallback(x.sender.att, res, class)
	return usedUp
}

// forbidRetry tells the client not to repeat a request that an upstream may have processed, and that is not
// safe to send twice. The response, or its reason, may be of another upstream.
func (x *Exchange) forbidRetry() {
	if x.report.Exposed && !x.r.IsSafe() {
		x.w.ForbidRetry()
	}
}

// contentType guesses the media type of body from its first byte: JSON, HTML or plain text.
func contentType(body []byte) string {
	if len(body) > 0 {
		switch body[0] {
		case '{', '[':
			return "application/json"
		case '<':
			return "text/html; charset=utf-8"
		}
	}
	return "text/plain; charset=utf-8"
}
