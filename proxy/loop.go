package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// run is the retry loop: permit, attempt, decision, wait. It returns the status
// code that the client got, 0 for none, and the outcome.
func (x *exchange) run() (int, policy.Outcome) {
	var again, d policy.Decision // why the next attempt is made, and the decision on it
	var a policy.Attempt
	for now := x.began; ; now = x.tick() {
		if in := x.admit(now); in != admitted {
			return x.concludeUnsent(in)
		}
		if again.Retry {
			x.countRetry(again)
		}
		switch stays := x.tryOnce(&a, &d, again.Free); {
		case !stays:
			return x.abandon()
		case !d.Retry && !x.mayOutlive(&a, &d):
			return x.conclude(&a, d)
		}
		x.discard()
		switch x.pause(d) {
		case clientLeft:
			return x.concludeUnsent(clientLeftQueue)
		case drainBegan:
			x.returnBudgetToken()
			return x.conclude(&a, policy.Decision{Class: d.Class, Why: policy.ReasonDraining})
		}
		again = d
	}
}

// tryOnce makes one attempt and sets a to its result and d to the decision on it.
// It reports whether the client is still there. If the attempt times out and no
// retry is possible, the attempt goes on with all the time that is left.
func (x *exchange) tryOnce(a *policy.Attempt, d *policy.Decision, fresh bool) bool {
	x.attempt(a, fresh || x.waiter.permit.Probe())
	x.tick()
	stays := x.judgeAttempt(a, d)
	for stays && !d.Retry && a.Cause == policy.CauseAttemptTimeout && x.mayResume() {
		x.resume(a)
		x.tick()
		stays = x.judgeAttempt(a, d)
	}
	if !stays {
		return false
	}
	if x.waiter.permit.Taken() { // else it was given back
		x.abandonPermit(x.timeoutEndKind())
	}
	if x.endpoint != nil {
		reportToEndpoint(x.endpoint, a)
	}
	x.attemptDone(a, d.Class)
	return true
}

// judgeAttempt returns the permit of the attempt and sets d to the decision on it. It
// reports whether the client is still there. A response counts even if it is not.
func (x *exchange) judgeAttempt(a *policy.Attempt, d *policy.Decision) bool {
	*d = policy.Decision{}
	if a.Status == 429 {
		x.startPause(a)
	}
	stays := x.clientEnd.Load() == clientPresent
	if a.Cause == policy.CauseStatus || stays && a.Cause != policy.CauseAttemptTimeout {
		x.releasePermit(a)
	}
	if stays && !x.isPlainSuccess(a) {
		*d = x.judge(a)
	}
	return stays
}

// clientLeft ends an exchange whose client left during a wait.
func (x *exchange) clientLeft() (int, policy.Outcome) {
	x.clientEnd.Store(clientGone)
	return x.abandon()
}

// judge asks the policy about a response that is no plain success. It asks first without the
// budget: only if a retry is possible otherwise is it worth reading the rest of the request
// body and buffering the response.
func (x *exchange) judge(a *policy.Attempt) policy.Decision {
	if x.noAttemptReason != policy.ReasonNone {
		return policy.Decision{Class: policy.NotSent, Why: x.noAttemptReason}
	}
	r := x.route
	x.startClock(x.clock)
	s := x.situation()
	if s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // as far as it can become so
	}
	d := r.Policy.Decide(a, &s, nil, 0, policy.Shared())
	switch {
	case d.Free:
		return d
	case r.DryRun:
		return x.observe(a, d)
	case !d.Retry:
		return d
	}
	if why := x.retryBlockedBy(a); why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	why := x.secure(a)
	x.tick()
	if why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	if x.clientEnd.Load() != clientPresent {
		return policy.Decision{Class: d.Class, Why: policy.ReasonBodyUnfinished}
	}
	if a.Header != nil {
		a.Header = &x.buffered.resp // the head moved there with its response
	}
	s = x.situation()
	if x.grpc && s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // what came is kept, and the rest follows it as it comes
	}
	budget, shut := r.budget(), x.retryWaitsInQueue()
	if shut {
		budget = nil // the breaker lets in no more than the upstream bears
	}
	d = r.Policy.Decide(a, &s, budget, x.set.server.since(x.clock), policy.Shared())
	x.hasBudgetToken = d.Retry && !d.Free && budget != nil
	if shut && !a.HasRetryAfter {
		d.Wait = 0 // the wait is at the breaker
	}
	return d
}

// secure makes a retry possible: it buffers the failed response and reads the request body to
// its end, or as far as it arrives in time. It returns the reason if that is impossible. The
// client of a gRPC call may wait for a response before it sends more, so its messages are
// not awaited.
func (x *exchange) secure(a *policy.Attempt) policy.Reason {
	unfinished := x.replay() == policy.ReplayUnfinished
	if unfinished {
		x.upNotReusable = true // the rest of it could come after the response
		x.stopPump()
	}
	if a.Cause == policy.CauseStatus {
		if why := x.buffered.read(); why != policy.ReasonNone {
			return why
		}
	}
	if unfinished && !x.grpc {
		x.finishBody(x.deadline)
	}
	return policy.ReasonNone
}

// longestWait bounds a wait if no request timeout does, so that an upstream cannot block its
// clients with one Retry-After.
const longestWait = 10 * time.Minute

func (x *exchange) situation() policy.Situation {
	left := longestWait
	if !x.deadline.IsZero() {
		left = x.deadline.Sub(x.clock)
	}
	return policy.Situation{
		Retries:       x.retries,
		MaxRetries:    x.maxRetries,
		Safe:          x.safe,
		Replay:        x.replay(),
		Left:          left,
		Elapsed:       x.clock.Sub(x.began),
		Previous:      x.wait,
		FreeRetryUsed: x.freeRetryUsed,
		Draining:      x.c.server.draining.Load(),
		Layered:       x.layered,
	}
}

// pause waits before a retry. Everything that could forbid the retry was checked before. Only
// the client or a drain can end the wait early.
func (x *exchange) pause(d policy.Decision) waitEnd {
	x.attemptLog.waited(d.Wait)
	if d.Free {
		x.freeRetryUsed = true
		return x.noWait()
	}
	x.retries++
	x.wait = d.Wait
	if d.Wait <= 0 {
		return x.noWait()
	}
	x.observer.WaitBegan()
	began := x.tick()
	end := x.c.await(began.Add(d.Wait), nil)
	x.observer.WaitEnded(x.tick().Sub(began))
	x.traceWait(d.Why.String(), began)
	return end
}

// noWait is the end of a wait of length 0. The client was not watched during an attempt shorter
// than watchAfter, so it may have left meanwhile.
func (x *exchange) noWait() waitEnd {
	if x.c.hungUp() {
		return clientLeft
	}
	return waitedOut
}

// conclude gives the client the last real response, or one of our own if there never was one.
func (x *exchange) conclude(a *policy.Attempt, d policy.Decision) (int, policy.Outcome) {
	if d.Class != policy.ClassNone {
		if code, o, done := x.fallBack(a, reasonOf(d.Why)); done {
			return code, o
		}
	}
	x.reason = reasonOf(d.Why)
	outcome := policy.GaveUp(d.Why)
	if d.Class == policy.ClassNone {
		outcome = policy.OutcomeSuccess
		if x.failed {
			outcome = policy.OutcomeRecovered
		}
	}
	switch {
	case x.buffered.full && (x.buffered.attempt == x.attempts || a.Cause != policy.CauseStatus):
		x.dropUpstream()
		return x.relayBuffered(outcome, reasonOf(d.Why))
	case a.Cause == policy.CauseStatus:
		x.buffered.drop()
		return x.relay(outcome, reasonOf(d.Why))
	}
	x.dropUpstream()
	return x.fail(a.Cause, outcome, d.Why)
}

// reasonOf returns the text for the client, "" if there is nothing to explain.
func reasonOf(why policy.Reason) string {
	if why == policy.ReasonNone {
		return ""
	}
	return why.String()
}

// abandon ends an exchange whose client left or sent a broken request.
func (x *exchange) abandon() (int, policy.Outcome) {
	class := policy.NotSent
	if x.sentSome() {
		class = policy.Unknown // the upstream may go on with it
	}
	x.abandonPermit(policy.Abandoned)
	x.dropUpstream()
	x.stopPump()
	if x.attemptOpen() {
		x.attemptDone(&policy.Attempt{Cause: policy.CauseReset}, class)
	}
	x.mustClose = true
	x.tick()
	return x.respondToClientError()
}
