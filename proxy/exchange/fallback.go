package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// fallbackKind is what responded in the upstream's place.
type fallbackKind uint8

const (
	noFallback fallbackKind = iota
	fallbackResponse
	fallbackUpstream
)

// String returns the value of X-Retryproxy-Fallback, "" for none.
func (k fallbackKind) String() string {
	return [...]string{noFallback: "", fallbackResponse: "answer", fallbackUpstream: "upstream"}[k]
}

// fallBack lets the route's fallbacks answer a request that failed because of reason. a is its
// last attempt, nil if the next one was not sent. It reports false if there is no fallback or if
// none has a better response: the client then gets what it would have got without.
func (x *Exchange) fallBack(a *policy.Attempt, reason string) (int, policy.Outcome, bool) {
	if len(x.Route.Fallbacks) == 0 {
		return 0, 0, false
	}
	if x.buffered.readLast(a) {
		if code, o, done := x.askFallbacks(reason); done {
			return code, o, true
		}
	}
	f := x.Route.OwnResponse()
	if f == nil {
		return 0, 0, false
	}
	x.discard()
	x.buffered.drop()
	x.endIfUnread()
	x.report.Reason, x.w.fallback = reason, fallbackResponse
	code, o := x.w.respondOwn(f.Status, contentType(f.Body), f.Body, policy.OutcomeFallback, reason)
	return code, o, true
}

// askFallbacks asks one fallback upstream after the other until one has a better response. A request
// that may have been processed and must not be twice goes to no further one.
func (x *Exchange) askFallbacks(reason string) (int, policy.Outcome, bool) {
	prepared := false
	for _, to := range x.Route.FallbackRoutes {
		switch {
		case x.report.Exposed && !x.Safe:
			return 0, 0, false
		case x.WouldDropTLS(to.Upstream):
			continue
		case !prepared:
			x.discard()
			x.upload.fetchBody()
			prepared = true
		}
		if x.ClientEnd.Load() != request.ClientPresent {
			code, o := x.abandon()
			return code, o, true
		}
		if !x.Body.Ended || x.upload.replay() != policy.ReplayWhole {
			return 0, 0, false
		}
		if code, o, done := x.askFallback(to, reason); done {
			return code, o, true
		}
	}
	return 0, 0, false
}

// fetchBody reads the client's whole body, even if none of it was read yet.
func (u *upload) fetchBody() {
	b := &u.r.Body
	if b.Ended || !b.Keeping {
		return
	}
	if !b.Started {
		b.Started, b.Began = true, u.r.Now()
	}
	u.finishBody(u.r.RespondBy(u.r.Route.RequestTimeout))
}

// askFallback sends the request to a fallback upstream, once, and relays what comes if it is no
// failure. It is no attempt at the upstream and counts as none.
func (x *Exchange) askFallback(to *settings.RouteState, reason string) (int, policy.Outcome, bool) {
	last, noAttempt := x.att, x.adm.noAttemptReason
	x.redirect(to, &attempt.Attempt{Host: &x.Process.Attempts, Buffers: &x.Conn.Buffers})
	x.lastAttempt, x.adm.noAttemptReason = false, policy.ReasonNone
	x.Deadline = x.RespondBy(x.RequestTimeout())
	switch x.adm.acquirePermit(x.Tick()) {
	case admitted:
	case clientLeftQueue:
		code, o := x.clientLeft()
		return code, o, true
	default:
		return x.fallbackFailed(last, noAttempt)
	}
	var res policy.Attempt
	x.beginAttempt(x.Attempts + 1)
	x.makeAttempt(&res, x.att.Permit.Probe())
	if !x.ClientStaysOn() {
		x.abandonPermit(breaker.Abandoned)
		x.discard()
		x.report.EndSpan(x.att, &policy.Attempt{Cause: policy.CauseReset}, policy.Unknown)
		x.att.Began = 0
		code, o := x.abandon()
		return code, o, true
	}
	x.finishFallbackAttempt(&res)
	if !x.Good(&res) {
		x.discard()
		return x.fallbackFailed(last, noAttempt)
	}
	x.buffered.drop()
	x.report.Reason, x.w.fallback = reason, fallbackUpstream
	code, o := x.relay(policy.OutcomeFallback, reason)
	return code, o, true
}

// redirect has the next attempts go to another upstream. The request headers are rendered anew for
// it.
func (s *sender) redirect(to *settings.RouteState, a *attempt.Attempt) {
	s.r.Dest, s.avoid = to, ""
	s.att = a
	s.r.Conn.Buffers.Put(s.r.RequestHeaders)
	s.r.RequestHeaders = nil
}

// fallbackFailed counts a fallback upstream that had no better response and goes back to the last
// attempt at the upstream, whose result the client gets.
func (x *Exchange) fallbackFailed(last *attempt.Attempt, noAttempt policy.Reason) (int, policy.Outcome, bool) {
	x.report.Observer.FallbackFailed()
	x.redirect(x.Route, last)
	x.adm.noAttemptReason = noAttempt
	return 0, 0, false
}

// finishFallbackAttempt releases the permit at the fallback upstream and records the attempt.
func (x *Exchange) finishFallbackAttempt(res *policy.Attempt) {
	if res.Cause == policy.CauseAttemptTimeout {
		x.abandonPermit(x.TimeoutEndKind())
	}
	x.adm.releasePermit(res)
	x.report.RecordFallback(x.att, res, x.Route.Policy.Classify(res))
}

// contentType guesses from the first byte: what begins like JSON or HTML is meant so.
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
