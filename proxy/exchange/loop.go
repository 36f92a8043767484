package exchange

import (
	"context"
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/status"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// run is the retry loop: permit, attempt, decision, wait. It returns the status code that the
// client got, or 0 for none, and the outcome.
func (x *Exchange) run() (int, policy.Outcome) {
	var again, d policy.Decision // why the next attempt is made, and the decision on it
	var res policy.Result
	for now := x.r.Time.Began; ; now = x.r.Time.Tick() {
		if why := x.admit(now); why != nil {
			return x.concludeUnsent(why)
		}
		if again.Retry {
			x.report.Retry(again)
		}
		switch stays := x.tryOnce(&res, &d, again.Free); {
		case !stays:
			return x.abandon()
		case d.LacksToken() && x.mayRetryThroughBreaker(&res, &d): // d is that retry
		case !d.Retry:
			return x.conclude(&res, d)
		}
		x.buffered.leave(&res, &x.attempts.stream)
		switch x.pause(d) {
		case admission.ClientLeft:
			return x.concludeUnsent(admission.LeftClient())
		case admission.DrainBegan:
			x.sender.returnTicket()
			return x.conclude(&res, policy.Decision{Class: d.Class, Why: policy.ReasonDraining})
		case admission.NoToken:
			return x.conclude(&res, policy.Decision{Class: d.Class, Why: policy.ReasonBudgetExhausted})
		}
		again = d
	}
}

// tryOnce makes one attempt, sets res to its result and d to the decision on it. It reports whether
// the client is still there. If the attempt times out and no retry is possible, the attempt
// continues with all the time that is left.
func (x *Exchange) tryOnce(res *policy.Result, d *policy.Decision, fresh bool) bool {
	x.r.BeginAttempt()
	x.attempts.begin(x.r.Attempts)
	x.attempts.make(res, fresh || x.sender.ticket.IsProbe())
	x.r.Time.Tick()
	stays := x.judgeAttempt(res, d)
	for stays && !d.Retry && res.Cause == policy.CauseAttemptTimeout && x.sender.mayResume() {
		x.attempts.resume(res)
		x.r.Time.Tick()
		stays = x.judgeAttempt(res, d)
	}
	if !stays {
		return false
	}
	x.sender.abandonTicket(x.r.Time.TimeoutEndKind()) // unless it was settled with the result
	if d.Token == policy.TokenTaken {
		x.sender.ticket.Reserve(x.r.Route.RetryBudget())
	}
	x.sender.reportToEndpoint(x.sender.att, res)
	if x.attempts.hedge.learns {
		x.attempts.hedge.learnLatency(res, d.Class)
	}
	x.report.AttemptDone(x.sender.att, res, d.Class)
	if x.r.Tokens != nil {
		x.countFailed(res, d.Retry)
	}
	return x.r.ClientEnd() != request.ClientGone // it may have left while its failed response was read
}

// countFailed counts what the failed attempt used, and gives back what an attempt took of rate limits
// that was not sent.
func (x *Exchange) countFailed(res *policy.Result, again bool) {
	if used := x.r.Tokens.TakeLost(); used.Any() {
		fate := tokens.Wasted
		if again {
			fate = tokens.Retried
		}
		x.report.Observer.TokensUsed(used, fate)
	}
	switch res.Cause {
	case policy.CauseDial, policy.CauseTLS, policy.CauseUntrusted, policy.CauseIdleClose, policy.CauseRefusedStream:
		x.r.Tokens.Unsent()
	}
}

// reportToEndpoint records the result res of an attempt with its endpoint. There is none if the
// upstream has one address. Dials are counted where they are made. What a client can cause by itself
// is doubtful: it could eject every healthy endpoint.
func (s *sender) reportToEndpoint(a *attempt.Attempt, res *policy.Result) {
	if res.Cause == policy.CauseStatus {
		s.r.Dest.UpstreamState.Pool.NotePassed()
	}
	switch {
	case a.Endpoint() == nil:
	case res.Cause == policy.CauseIdleClose, res.Cause == policy.CauseRefusedStream:
		// A restart closes all idle connections at once, and REFUSED_STREAM only means that there
		// was no room.
	case res.Cause == policy.CauseAttemptTimeout && s.r.CutShort(a),
		res.Cause == policy.CauseReset && !a.IsSent(): // applications give up slow uploads
		a.Endpoint().ReportDoubtful()
	case res.Cause == policy.CauseReset:
		a.Endpoint().ReportLost()
	case res.Cause != policy.CauseStatus, countsAgainstEndpoint(res.JudgedStatus()):
		a.Endpoint().ReportFailure()
	default:
		a.Endpoint().ReportSuccess()
	}
}

// countsAgainstEndpoint reports whether a status is evidence of a broken endpoint. A 500 usually
// comes from the request or from code that all endpoints share; a 429 concerns the client.
func countsAgainstEndpoint(code int) bool { return status.GatewayErrors.Has(code) }

// judgeAttempt returns the permit of the attempt and sets d to the decision on it. It reports
// whether the client is still there. A response counts even if the client has left.
func (x *Exchange) judgeAttempt(res *policy.Result, d *policy.Decision) bool {
	*d = policy.Decision{}
	if res.Status == 429 {
		x.r.StartPause(res)
	}
	stays := x.r.ClientEnd() == request.ClientPresent
	if res.Cause == policy.CauseStatus || stays && res.Cause != policy.CauseAttemptTimeout {
		x.sender.release(res)
	}
	if stays && !x.r.IsPlainSuccess(res) {
		*d = x.judge(res)
	}
	if stays {
		account{&x.attempts, &x.buffered}.judge(res, d)
	}
	return stays
}

// judge asks the policy about a response that is no plain success. It asks first without the
// budget. Only if a retry is possible does it read the rest of the request body and buffer the
// response.
func (x *Exchange) judge(res *policy.Result) policy.Decision {
	if x.sender.unmade != nil {
		return policy.Decision{Class: policy.NotSent}
	}
	r := x.r.Route
	x.r.Time.StartClock(x.r.Time.Clock)
	s := x.situation()
	if s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // assume that secure succeeds
	}
	d := r.Policy.Decide(res, &s, nil, 0, backoff.Shared())
	switch {
	case d.Free:
		return d
	case r.DryRun:
		return x.dryRun(res, d)
	case !d.Retry:
		return d
	}
	if why := x.retryBlockedBy(res); why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	why := x.secure(res)
	x.r.Time.Tick()
	if why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	if x.r.ClientEnd() != request.ClientPresent {
		return policy.Decision{Class: d.Class, Why: policy.ReasonBodyUnfinished}
	}
	if res.Header != nil && x.buffered.full {
		res.Header = x.buffered.kept.Response() // the headers moved there with the response
	}
	if why := x.buffered.readError(res, &x.attempts.stream); why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	s = x.situation()
	if x.r.GRPC && s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // what arrived is kept; the rest follows as it arrives
	}
	budget, shut := r.RetryBudget(), x.r.RetryWaitsInQueue()
	if shut {
		budget = nil // the breaker limits the load by itself
	}
	d = r.Policy.Decide(res, &s, budget, x.r.Process.Clock.Since(x.r.Time.Clock), backoff.Shared())
	if shut && !res.HasRetryAfter && r.UpstreamState.Admission.AdmitsOnlyProbes() {
		d.Wait = 0 // the wait is at the breaker
	}
	return d
}

// situation returns what the policy has to know about the request.
func (x *Exchange) situation() policy.Situation {
	s := x.sender.situation()
	if x.sender.ticket.FoundDown() {
		s.Retries = max(0, min(s.Retries, s.MaxRetries-1))
	}
	return s
}

// secure makes a retry possible. It buffers the failed response and reads the request body to its
// end, or as much as arrives in time. If that is impossible, it returns the reason. It does not
// wait for the messages of a gRPC call, because its client may wait for a response before it sends
// more.
func (x *Exchange) secure(res *policy.Result) policy.Reason {
	unfinished := x.sender.replay() == policy.ReplayUnfinished
	if unfinished {
		x.sender.att.StopUpload()
	}
	if res.Cause == policy.CauseStatus {
		if why := x.buffered.read(); why != policy.ReasonNone {
			return why
		}
	}
	if unfinished && !x.r.GRPC {
		x.r.FinishBody(x.r.Time.Deadline)
	}
	return policy.ReasonNone
}

// admit gets the ticket of the next attempt. If the route has a fallback, a request is not sent whose
// account is used up.
func (x *Exchange) admit(now clock.Instant) *admission.Refusal {
	if len(x.r.Route.Fallbacks) > 0 {
		if left := x.r.AccountLeft(x.r.Route, now); left > 0 {
			why := admission.GaveUp(429, policy.ReasonQuotaExhausted, "the account is used up")
			why.RetryAfter = admission.WholeSeconds(left)
			return &why
		}
	}
	return x.admitter.Admit(&x.sender.ticket, now, x.sender.ask())
}

// backOff waits for the time of d.
func (x *Exchange) backOff(d policy.Decision) admission.WaitEnd {
	x.report.Observer.WaitBegan()
	began := x.r.Time.Tick()
	end := x.r.Await(began.Add(d.Wait), nil)
	x.report.Observer.WaitEnded(x.r.Time.Tick().Sub(began))
	x.report.Waited(d.Why.String(), began)
	return end
}

// pause waits before a retry: for its budget token, if it has none yet, and for the backoff. Both
// begin now. All checks that could forbid the retry were made before. The client or a drain ends the
// wait early.
func (x *Exchange) pause(d policy.Decision) admission.WaitEnd {
	x.report.AttemptLog.Waited(d.Wait)
	if d.Free {
		x.sender.freeRetries++
		return x.noWait()
	}
	if !x.sender.ticket.FoundDown() { // otherwise the breaker paces it, as long as the request may be queued
		x.r.BeginRetry()
	}
	x.sender.waited = d.Wait
	x.sender.askedWaitUsed = x.sender.askedWaitUsed || d.Token == policy.TokenWaived
	end := admission.WaitedOut
	if d.Token == policy.TokenQueued {
		began := x.r.Time.Tick()
		end = x.admitter.AwaitToken(&x.sender.ticket, x.r.Route.Terms.Tokens)
		queued := x.r.Time.Tick().Sub(began)
		x.report.AttemptLog.Waited(max(d.Wait, queued))
		d.Wait -= queued
	}
	switch {
	case end != admission.WaitedOut:
	case d.Wait > 0:
		end = x.backOff(d)
	default:
		x.report.Observer.WaitBegan()
		x.report.Observer.WaitEnded(0)
		return x.noWait()
	}
	return end
}

// noWait ends a wait of length 0. An attempt shorter than downstream.PollEvery does not watch the
// client, so the client may have left.
func (x *Exchange) noWait() admission.WaitEnd {
	if x.r.Conn.HungUp() {
		return admission.ClientLeft
	}
	return admission.WaitedOut
}

// conclude sends the client the last real response, or our own if there never was one.
func (x *Exchange) conclude(res *policy.Result, d policy.Decision) (int, policy.Outcome) {
	if x.sender.unmade != nil {
		return x.concludeUnsent(x.sender.unmade)
	}
	if d.Class != policy.ClassNone {
		if code, o, done := x.fallBack(res, reasonOf(d.Why)); done {
			return code, o
		}
	}
	x.w.Asks(res.RetryAfter)
	outcome, logged := x.outcomeOf(res, d), reasonOf(d.Why)
	if outcome == policy.OutcomeGaveUpNotInRetryOn {
		logged = policy.ReasonNotInRetryOn.String() // the response does not carry this reason: a proxy in front may retry the status
	}
	x.report.Explain(logged)
	switch {
	case x.buffered.keptOf(x.r.Attempts), x.buffered.holds() && res.Cause != policy.CauseStatus:
		x.sender.att.Drop()
		return x.relay.buffered(&x.buffered, outcome, reasonOf(d.Why))
	case res.Cause == policy.CauseStatus:
		x.buffered.drop()
		return x.relay.response(outcome, reasonOf(d.Why))
	}
	x.sender.att.Drop()
	return x.fail(res.Cause, outcome, d.Why)
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
func (x *Exchange) fail(cause policy.Cause, o policy.Outcome, why policy.Reason) (int, policy.Outcome) {
	dial := x.sender.att.DialError()
	timedOut := dial != nil && (dial.Kind == upstream.KindTimeout || errors.Is(dial, context.DeadlineExceeded)) // the latter is a lookup's
	x.relay.endIfUnread()
	return x.w.Failed(cause, timedOut, o, why)
}

// concludeUnsent ends an exchange whose next attempt is not sent.
func (x *Exchange) concludeUnsent(why *admission.Refusal) (int, policy.Outcome) {
	x.sender.returnTicket()
	if why.ClientLeft {
		return x.clientLeft()
	}
	x.w.Asks(why.RetryAfter)
	if why.CloseClient {
		x.w.Close()
	}
	if code, o, done := x.fallBack(nil, why.Reason); done {
		return code, o
	}
	return x.reject(why)
}

// reject sends the client the last real response, or one of our own if there was none.
func (x *Exchange) reject(why *admission.Refusal) (int, policy.Outcome) {
	x.report.Explain(why.Reason)
	if x.buffered.holds() {
		return x.relay.buffered(&x.buffered, why.Outcome, why.Reason)
	}
	x.relay.endIfUnread()
	if !x.w.HasRetryAfter() && why.Status == 503 {
		x.w.Asks(time.Duration(x.r.Route.UpstreamState.Admission.RetryAfter()) * time.Second)
	}
	return x.w.With(why.Status, why.Outcome, why.Reason, why.Text)
}

// clientLeft ends an exchange whose client left during a wait.
func (x *Exchange) clientLeft() (int, policy.Outcome) {
	x.r.ClientLeft()
	return x.abandon()
}

// abandon ends an exchange whose client left or sent a broken request.
func (x *Exchange) abandon() (int, policy.Outcome) {
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
