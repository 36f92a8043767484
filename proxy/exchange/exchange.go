package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/permit"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/response"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upload"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Exchange is one request with its attempts and its response. It belongs to its connection, which
// reuses it for the next request. Only PiecesSent and EndTunnel are safe for concurrent use.
type Exchange struct {
	r        request.Request
	report   report.Report
	admit    permit.Admitter
	upload   upload.Upload
	sender   sender
	attempts attempts
	buffered bufferedResponse
	relay    relay
	w        response.Writer
}

// Init prepares the exchange of a connection for its first use.
func (x *Exchange) Init(c *downstream.Conn, p *request.Process) {
	r := &x.r
	r.Init(c, p)
	c.Spans = x
	x.report.Request = r
	x.w.Init(r, &x.report)
	x.admit.Init(r, &x.report)
	x.upload.Init(r)
	x.sender.r, x.sender.admit, x.sender.upload = r, &x.admit, &x.upload
	x.sender.first.Host, x.sender.first.Buffers = &p.Attempts, &c.Buffers
	x.sender.begin()
	x.attempts.s, x.attempts.r, x.attempts.report, x.attempts.w = &x.sender, r, &x.report, &x.w
	x.attempts.hedge.s, x.attempts.hedge.report = &x.sender, &x.report
	x.buffered.s = &x.sender
	x.relay.at = &x.attempts
}

// Begin prepares the exchange for the request that was just parsed.
func (x *Exchange) Begin(set *settings.Settings, now clock.Instant) {
	x.r.Begin(set, now)
	x.r.Conn.WriteTimeout = set.WriteTimeout
	x.w.Begin(x.r.HTTP.Close)
	x.sender.begin()
	x.attempts.hedge.begin()
	x.report.Reset()
	x.admit.Begin()
}

// EndAfterFault ends the request after a fault of the proxy. It reports whether a request was
// being served.
func (x *Exchange) EndAfterFault() bool {
	x.w.MustReset = true
	x.attempts.hedge.abort()
	x.sender.abandonPermit(breaker.Abandoned)
	x.sender.drop()
	x.upload.Stop()
	if !x.report.Open {
		return false
	}
	x.report.Done(0, policy.OutcomeResponseBroken)
	x.end()
	return true
}

// end returns all memory of the exchange except what the next request will use.
func (x *Exchange) end() {
	x.r.Body.Close()
	x.sender.att.Resp.Detach() // its spans may point into the buffered response
	x.buffered.drop()
	x.sender.att.Body.Release()
	x.putHead()
	if x.r.Out.Headers != nil {
		x.r.Conn.Buffers.Put(x.r.Out.Headers)
		x.r.Out.Headers = nil
	}
	x.w.Release()
}

// Serve handles the parsed request: route, retry loop, response. It reports whether the connection
// can serve another request.
func (x *Exchange) Serve() bool {
	x.r.FindRoute()
	x.report.Open = true
	x.report.Begin()
	if x.r.Settings.Tracer != nil {
		x.report.BeginTrace()
	}
	code, outcome := x.respond()
	x.report.Done(code, outcome)
	if x.w.MustReset {
		x.r.Conn.Abort()
	}
	x.end()
	return !x.w.MustClose && !x.w.MustReset
}

// respond sends the client its response. It returns the status code, 0 if there was no response,
// and the outcome.
func (x *Exchange) respond() (int, policy.Outcome) {
	x.r.Out.FindID()
	if why := x.r.Refusal(); why != http1.RefusalNone {
		return x.w.Refuse(why)
	}
	if x.r.IsAnsweredLocally() {
		return x.w.MaxForwards()
	}
	x.r.Route.UpstreamState.RetryBudget.Request(x.r.Process.Clock.Since(x.r.Time.Began))
	x.r.Prepare()
	return x.run()
}

// RefuseHeaders responds to request headers that broke the rule why.
func (x *Exchange) RefuseHeaders(why http1.Refusal) {
	x.r.Time.Tick()
	x.r.Out.MakeID()
	x.report.Begin()
	x.report.Done(x.w.Refuse(why))
	x.end()
}

// HeadersTimedOut responds to a client whose request headers did not arrive in time.
func (x *Exchange) HeadersTimedOut() {
	x.r.Time.Tick()
	x.w.MustClose = true
	x.r.Out.MakeID()
	x.report.Begin()
	x.report.Done(x.w.Error(408, policy.OutcomeRequestTimeout, "request_timeout"))
	x.end()
}

// LastTick returns when the clock was last read for the request, or zero if it was not read yet.
func (x *Exchange) LastTick() clock.Instant { return x.r.Time.Clock }

// Tick reads the clock for the request.
func (x *Exchange) Tick() { x.r.Time.Tick() }

// PiecesSent returns how many pieces of request bodies were sent upstream. It is safe for
// concurrent use.
func (x *Exchange) PiecesSent() uint32 { return x.upload.Pieces() }

// MustReset reports whether the connection must end with a reset, so that the client cannot
// mistake it for an orderly end.
func (x *Exchange) MustReset() bool { return x.w.MustReset }

// EndedByClient reports whether the request reached an upstream and was then ended by its client.
func (x *Exchange) EndedByClient() bool { return x.r.EndedByClient() }

// EndTunnel ends the tunnel of the request in order, if the request is one. It is safe for
// concurrent use.
func (x *Exchange) EndTunnel() { x.relay.upgraded.Load().end() }

// conclude sends the client the last real response, or our own if there never was one.
func (x *Exchange) conclude(a *policy.Attempt, d policy.Decision) (int, policy.Outcome) {
	if d.Class != policy.ClassNone {
		if code, o, done := x.fallBack(a, reasonOf(d.Why)); done {
			return code, o
		}
	}
	x.report.Reason = reasonOf(d.Why)
	outcome := x.outcomeOf(a, d)
	if outcome == policy.OutcomeGaveUpNotInRetryOn {
		x.report.Reason = policy.ReasonNotInRetryOn.String() // the response does not carry this reason: a proxy in front may retry the status
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
	case a.Status >= 500 && a.Status <= 599: // a failure that is not retried, such as 501, is no success either
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

// abandon ends an exchange whose client left or sent a broken request.
func (x *Exchange) abandon() (int, policy.Outcome) {
	class := policy.NotSent
	if x.sender.att.SentSome() {
		class = policy.Unknown // the upstream may still work on it
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
