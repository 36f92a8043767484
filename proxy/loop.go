package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// run is the retry loop: a place at the upstream's door, attempt, verdict,
// wait, again. It knows nothing of the wire. It gives the status code the
// caller got (0: none) and the outcome.
func (x *exchange) run() (int, policy.Outcome) {
	var again, d policy.Decision // what the next attempt repeats, nothing at first, and the verdict on it
	var a policy.Attempt
	for now := x.began; ; now = x.tick() {
		if in := x.enter(now); in != admitted {
			return x.stayOut(in)
		}
		if again.Retry {
			x.retrying(again)
		}
		switch stays := x.tryOnce(&a, &d, again.Free); {
		case !stays:
			return x.abandon()
		case !d.Retry && !x.outlives(&a, &d):
			return x.conclude(&a, d)
		}
		x.discard()
		switch x.pause(d) {
		case callerLeft:
			return x.stayOut(leftWaiting)
		case drainBegan:
			x.giveBack()
			return x.conclude(&a, policy.Decision{Class: d.Class, Why: policy.ReasonDraining})
		}
		again = d
	}
}

// tryOnce is one attempt, of which a is what came and d the verdict on it; false: the caller's side
// ended. An attempt timeout after which no repeat is possible is no end: the
// attempt goes on with all the time that is left.
func (x *exchange) tryOnce(a *policy.Attempt, d *policy.Decision, fresh bool) bool {
	x.attempt(a, fresh || x.waiter.place.Probe())
	x.tick()
	stays := x.weigh(a, d)
	for stays && !d.Retry && a.Cause == policy.CauseAttemptTimeout && x.waitsOn() {
		x.resume(a)
		x.tick()
		stays = x.weigh(a, d)
	}
	if !stays {
		return false
	}
	if x.waiter.place.Taken() { // else it was given back
		x.desert(x.overtime())
	}
	if x.member != nil {
		judgeMember(x.member, a)
	}
	x.attemptDone(a, d.Class)
	return true
}

// weigh gives the attempt's place back and judges it by d; false: the caller's side
// ended. What the upstream answered counts even then.
func (x *exchange) weigh(a *policy.Attempt, d *policy.Decision) bool {
	*d = policy.Decision{}
	if a.Status == 429 {
		x.noteCooldown(a)
	}
	stays := x.callerEnd.Load() == callerStays
	if a.Cause == policy.CauseStatus || stays && a.Cause != policy.CauseAttemptTimeout {
		x.vacate(a)
	}
	if stays && !x.plainAnswer(a) {
		*d = x.judge(a)
	}
	return stays
}

// leave ends an exchange whose caller left while it waited.
func (x *exchange) leave() (int, policy.Outcome) {
	x.callerEnd.Store(callerGone)
	return x.abandon()
}

// judge asks the policy about an answer that is not plain. A failing answer is first asked for without the
// budget, since only when a repeat is possible otherwise is it worth reading
// the rest of the caller's body and holding the answer.
func (x *exchange) judge(a *policy.Attempt) policy.Decision {
	if x.noAttempt != policy.ReasonNone {
		return policy.Decision{Class: policy.NotSent, Why: x.noAttempt}
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
	case r.Observe:
		return x.observe(a, d)
	case !d.Retry:
		return d
	}
	if why := x.against(a); why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	why := x.secure(a)
	x.tick()
	if why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	if x.callerEnd.Load() != callerStays {
		return policy.Decision{Class: d.Class, Why: policy.ReasonBodyUnfinished}
	}
	if a.Header != nil {
		a.Header = &x.held.resp // the head moved there with its response
	}
	s = x.situation()
	if x.grpc && s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // what came is kept, and the rest follows it as it comes
	}
	budget, shut := r.budget(), x.gateShut()
	if shut {
		budget = nil // the gate lets in no more than the upstream bears
	}
	d = r.Policy.Decide(a, &s, budget, x.set.server.since(x.clock), policy.Shared())
	x.token = d.Retry && !d.Free && budget != nil
	if shut && !a.HasRetryAfter {
		d.Wait = 0 // the wait is at the gate
	}
	return d
}

// secure makes a repeat possible: the failing answer is held, and then the
// caller's body read to its end, or as far as it comes in time. It gives the
// reason why that cannot be. The caller of a gRPC call may wait for an answer
// before it sends more, so its messages are not waited for.
func (x *exchange) secure(a *policy.Attempt) policy.Reason {
	unfinished := x.replay() == policy.ReplayUnfinished
	if unfinished {
		x.upSpent = true // the rest of it could come after the response
		x.stopPump()
	}
	if a.Cause == policy.CauseStatus {
		if why := x.held.take(); why != policy.ReasonNone {
			return why
		}
	}
	if unfinished && !x.grpc {
		x.finishBody(x.deadline)
	}
	return policy.ReasonNone
}

// longestWait bounds a wait where no request timeout does, so that an upstream
// cannot park its callers with one Retry-After.
const longestWait = 10 * time.Minute

func (x *exchange) situation() policy.Situation {
	left := longestWait
	if !x.deadline.IsZero() {
		left = x.deadline.Sub(x.clock)
	}
	return policy.Situation{
		Retries:    x.retries,
		MaxRetries: x.limit,
		Safe:       x.safe,
		Replay:     x.replay(),
		Left:       left,
		Elapsed:    x.clock.Sub(x.began),
		Previous:   x.wait,
		FreeUsed:   x.freeUsed,
		Draining:   x.c.server.draining.Load(),
		Nested:     x.nested,
	}
}

// pause waits before a retry. Everything that could forbid the retry was asked
// before; only the caller or a drain can end the wait early.
func (x *exchange) pause(d policy.Decision) waitEnd {
	x.trail.waited(d.Wait)
	if d.Free {
		x.freeUsed = true
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

// noWait is the end of a wait of no length. An attempt that took less than
// watchAfter was not watched, so the caller may have left meanwhile.
func (x *exchange) noWait() waitEnd {
	if x.c.hungUp() {
		return callerLeft
	}
	return waitedOut
}

// conclude gives the caller the last real response, or our own word when there
// never was one.
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
			outcome = policy.OutcomeRescued
		}
	}
	switch {
	case x.held.full && (x.held.attempt == x.attempts || a.Cause != policy.CauseStatus):
		x.dropUpstream()
		return x.relayHeld(outcome, reasonOf(d.Why))
	case a.Cause == policy.CauseStatus:
		x.held.drop()
		return x.relay(outcome, reasonOf(d.Why))
	}
	x.dropUpstream()
	return x.fail(a.Cause, outcome, d.Why)
}

// reasonOf is the text for the caller; none when there is nothing to explain.
func reasonOf(why policy.Reason) string {
	if why == policy.ReasonNone {
		return ""
	}
	return why.String()
}

// abandon ends an exchange whose caller left or broke its own request.
func (x *exchange) abandon() (int, policy.Outcome) {
	class := policy.NotSent
	if x.sentSome() {
		class = policy.Unknown // the upstream may go on with it
	}
	x.desert(policy.Abandoned)
	x.dropUpstream()
	x.stopPump()
	if x.attemptOpen() {
		x.attemptDone(&policy.Attempt{Cause: policy.CauseReset}, class)
	}
	x.mustEnd = true
	x.tick()
	return x.answerCallersFault()
}
