package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// run is the retry loop: permit, attempt, decision, wait. It returns the status
// code that the client got, 0 for none, and the outcome.
func (x *Exchange) run() (int, policy.Outcome) {
	var again, d policy.Decision // why the next attempt is made, and the decision on it
	var a policy.Attempt
	for now := x.Began; ; now = x.Tick() {
		if in := x.adm.admit(now); in != admitted {
			return x.concludeUnsent(in)
		}
		if again.Retry {
			x.adm.countRetry(again)
		}
		switch stays := x.tryOnce(&a, &d, again.Free); {
		case !stays:
			return x.abandon()
		case !d.Retry && !x.adm.mayOutlive(&a, &d):
			return x.conclude(&a, d)
		}
		x.discard()
		switch x.pause(d) {
		case clientLeft:
			return x.concludeUnsent(clientLeftQueue)
		case drainBegan:
			x.adm.returnBudgetToken()
			return x.conclude(&a, policy.Decision{Class: d.Class, Why: policy.ReasonDraining})
		}
		again = d
	}
}

// tryOnce makes one attempt and sets a to its result and d to the decision on it.
// It reports whether the client is still there. If the attempt times out and no
// retry is possible, the attempt goes on with all the time that is left.
func (x *Exchange) tryOnce(a *policy.Attempt, d *policy.Decision, fresh bool) bool {
	x.Attempts++
	x.beginAttempt(x.Attempts)
	x.makeAttempt(a, fresh || x.att.Permit.Probe())
	x.Tick()
	stays := x.judgeAttempt(a, d)
	for stays && !d.Retry && a.Cause == policy.CauseAttemptTimeout && !x.stream.silent && x.mayResume() {
		x.resume(a)
		x.Tick()
		stays = x.judgeAttempt(a, d)
	}
	if !stays {
		return false
	}
	if x.stream.silent && !d.Retry {
		x.goOnWithStream(a, d)
	}
	if x.att.Permit.Taken() { // else it was given back
		x.abandonPermit(x.TimeoutEndKind())
	}
	if x.att.Endpoint != nil {
		reportToEndpoint(x.att.Endpoint, a)
	}
	x.hedge.attemptDone(a, d.Class)
	return true
}

// judgeAttempt returns the permit of the attempt and sets d to the decision on it. It
// reports whether the client is still there. A response counts even if it is not.
func (x *Exchange) judgeAttempt(a *policy.Attempt, d *policy.Decision) bool {
	*d = policy.Decision{}
	if a.Status == 429 {
		x.StartPause(a)
	}
	stays := x.ClientEnd.Load() == request.ClientPresent
	if a.Cause == policy.CauseStatus || stays && a.Cause != policy.CauseAttemptTimeout {
		x.adm.releasePermit(a)
	}
	if stays && !x.IsPlainSuccess(a) {
		*d = x.judge(a)
	}
	return stays
}

// clientLeft ends an exchange whose client left during a wait.
func (x *Exchange) clientLeft() (int, policy.Outcome) {
	x.ClientEnd.Store(request.ClientGone)
	return x.abandon()
}

// judge asks the policy about a response that is no plain success. It asks first without the
// budget: only if a retry is possible otherwise is it worth reading the rest of the request
// body and buffering the response.
func (x *Exchange) judge(a *policy.Attempt) policy.Decision {
	if x.adm.noAttemptReason != policy.ReasonNone {
		return policy.Decision{Class: policy.NotSent, Why: x.adm.noAttemptReason}
	}
	r := x.Route
	x.StartClock(x.Clock)
	s := x.situation()
	if s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // as far as it can become so
	}
	d := r.Policy.Decide(a, &s, nil, 0, backoff.Shared())
	switch {
	case d.Free:
		return d
	case r.DryRun:
		return x.adm.observe(a, d)
	case !d.Retry:
		return d
	}
	if why := x.adm.retryBlockedBy(a); why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	why := x.secure(a)
	x.Tick()
	if why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	if x.ClientEnd.Load() != request.ClientPresent {
		return policy.Decision{Class: d.Class, Why: policy.ReasonBodyUnfinished}
	}
	if a.Header != nil {
		a.Header = &x.buffered.resp // the head moved there with its response
	}
	if why := x.readErrorBody(a); why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	s = x.situation()
	if x.GRPC && s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // what came is kept, and the rest follows it as it comes
	}
	budget, shut := r.RetryBudget(), x.RetryWaitsInQueue()
	if shut {
		budget = nil // the breaker lets in no more than the upstream bears
	}
	d = r.Policy.Decide(a, &s, budget, x.Process.Clock.Since(x.Clock), backoff.Shared())
	x.adm.hasBudgetToken = d.Retry && !d.Free && budget != nil
	if shut && !a.HasRetryAfter && r.UpstreamState.Admission.AdmitsOnlyProbes() {
		d.Wait = 0 // the wait is at the breaker
	}
	return d
}

// secure makes a retry possible: it buffers the failed response and reads the request body to
// its end, or as far as it arrives in time. It returns the reason if that is impossible. The
// client of a gRPC call may wait for a response before it sends more, so its messages are
// not awaited.
func (x *Exchange) secure(a *policy.Attempt) policy.Reason {
	unfinished := x.upload.replay() == policy.ReplayUnfinished
	if unfinished {
		x.att.NotReusable = true // the rest of it could come after the response
		x.upload.stop()
	}
	if a.Cause == policy.CauseStatus {
		if why := x.buffered.read(); why != policy.ReasonNone {
			return why
		}
	}
	if unfinished && !x.GRPC {
		x.upload.finishBody(x.Deadline)
	}
	return policy.ReasonNone
}

func (x *Exchange) situation() policy.Situation {
	left := request.LongestWait
	if !x.Deadline.IsZero() {
		left = x.Deadline.Sub(x.Clock)
	}
	return policy.Situation{
		Retries:       x.Retries,
		MaxRetries:    x.MaxRetries,
		Safe:          x.Safe,
		Replay:        x.upload.replay(),
		Left:          left,
		Elapsed:       x.Clock.Sub(x.Began),
		Previous:      x.wait,
		FreeRetryUsed: x.freeRetryUsed,
		Draining:      x.Process.Draining.Load(),
		Layered:       x.Layered,
	}
}

// pause waits before a retry. Everything that could forbid the retry was checked before. Only
// the client or a drain can end the wait early.
func (x *Exchange) pause(d policy.Decision) waitEnd {
	x.report.AttemptLog.Waited(d.Wait)
	if d.Free {
		x.freeRetryUsed = true
		return x.noWait()
	}
	x.Retries++
	x.wait = d.Wait
	if d.Wait <= 0 {
		return x.noWait()
	}
	x.report.Observer.WaitBegan()
	began := x.Tick()
	end := x.adm.await(began.Add(d.Wait), nil)
	x.report.Observer.WaitEnded(x.Tick().Sub(began))
	x.report.Waited(d.Why.String(), began)
	return end
}

// noWait is the end of a wait of length 0. The client was not watched during an attempt shorter
// than watchAfter, so it may have left meanwhile.
func (x *Exchange) noWait() waitEnd {
	if x.Conn.HungUp() {
		return clientLeft
	}
	return waitedOut
}

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
	case x.buffered.full && (x.buffered.attempt == int32(x.Attempts) || a.Cause != policy.CauseStatus):
		x.dropUpstream()
		return x.relayBuffered(outcome, reasonOf(d.Why))
	case a.Cause == policy.CauseStatus:
		x.buffered.drop()
		return x.relay(outcome, reasonOf(d.Why))
	}
	x.dropUpstream()
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
	if x.att.SentSome() {
		class = policy.Unknown // the upstream may go on with it
	}
	x.abandonPermit(breaker.Abandoned)
	x.dropUpstream()
	x.upload.stop()
	if x.att.Running() {
		x.hedge.attemptDone(&policy.Attempt{Cause: policy.CauseReset}, class)
	}
	x.w.mustClose = true
	x.Tick()
	return x.respondToClientError()
}
