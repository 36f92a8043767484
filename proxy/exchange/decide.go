package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// decide ends the attempt, which came to res, and returns whether there is a retry. If the attempt timed
// out and there is none, it continues first with all the time that is left. stays reports whether the
// client is still there.
func (x *Exchange) decide(res *policy.Result) (d policy.Decision, stays bool) {
	d, stays = x.judge(res)
	for stays && !d.Retry && res.Cause == policy.CauseAttemptTimeout && x.sender.mayResume() {
		x.attempts.resume(res)
		x.r.Time.Tick()
		d, stays = x.judge(res)
	}
	if !stays {
		return d, false
	}
	x.endAttempt(res, d)
	stays = x.r.ClientEnd() != request.ClientGone // it may have left while its failed response was read
	if stays && d.LacksToken() && res.Cause == policy.CauseReset && x.r.Route.Terms.Queues {
		d = x.throughBreaker(d)
	}
	return d, stays
}

// judge settles the ticket of the attempt and returns the decision on it. It reports whether the client
// is still there. A response counts even if the client has left.
func (x *Exchange) judge(res *policy.Result) (d policy.Decision, stays bool) {
	if res.Status == 429 {
		x.r.StartPause(res)
	}
	stays = x.r.ClientStaysOn()
	if res.Cause == policy.CauseStatus || stays && res.Cause != policy.CauseAttemptTimeout {
		x.sender.release(res)
	}
	if !stays {
		return d, false
	}
	if !x.r.Route.IsPlainSuccess(res) {
		d = x.ask(res)
	}
	account{&x.attempts, &x.buffered}.judge(res, &d)
	return d, true
}

// ask asks the policy about a response that is no plain success: whether there may be a retry and, after
// all that takes time or memory, when.
func (x *Exchange) ask(res *policy.Result) policy.Decision {
	if x.sender.unmade != nil {
		return policy.Decision{Class: policy.NotSent}
	}
	x.r.Time.StartClock(x.r.Time.Clock)
	p, s := &x.r.Route.Policy, x.situation()
	if s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // prepare reads the rest
	}
	d := p.Again(res, &s)
	switch {
	case d.Free:
		return d
	case x.r.Route.DryRun:
		return x.dryRun(res, &s, d)
	case !d.Retry:
		return d
	}
	if why := x.prepare(res); why != policy.ReasonNone {
		return policy.Decision{Class: d.Class, Why: why}
	}
	s = x.situation()
	if x.r.GRPC && s.Replay == policy.ReplayUnfinished {
		s.Replay = policy.ReplayWhole // what arrived is kept; the rest follows as it arrives
	}
	route := x.r.Route
	budget, shut := route.RetryBudget(), x.r.RetryWaitsInQueue()
	if shut {
		budget = nil // the breaker limits the load by itself
	}
	d = p.After(d, res, &s, budget, x.r.Time.SinceStart(), backoff.Shared())
	if shut && !res.HasRetryAfter && route.Terms.Queue.AdmitsOnlyProbes() {
		d.Wait = 0 // the wait is at the breaker
	}
	return d
}

// situation returns what the policy has to know about the request.
func (x *Exchange) situation() policy.Situation {
	s := x.sender.situation()
	if x.sender.admitter.RetryIsFree() {
		s.Retries = max(0, min(s.Retries, s.MaxRetries-1))
	}
	return s
}

// prepare makes a retry possible that the policy allows, before the wait: it reads what the client and
// the upstream still send, as far as the retry needs it. It returns the reason if the retry must not be
// made.
func (x *Exchange) prepare(res *policy.Result) policy.Reason {
	if why := x.retryBlockedBy(res); why != policy.ReasonNone {
		return why
	}
	why := x.secure(res)
	x.r.Time.Tick()
	if why != policy.ReasonNone {
		return why
	}
	if !x.r.ClientStaysOn() {
		return policy.ReasonBodyUnfinished
	}
	if res.Header != nil && x.buffered.full {
		res.Header = x.buffered.kept.Response() // the headers moved there with the response
	}
	return x.buffered.readError(res, &x.attempts.stream)
}

// retryBlockedBy returns why a retry that the policy allows must not be made, or ReasonNone. It is
// called before the wait, like the policy.
func (x *Exchange) retryBlockedBy(res *policy.Result) policy.Reason {
	if x.r.PauseTooLong(res) {
		return policy.ReasonRetryAfterTooLong
	}
	now := x.r.Time.Clock
	if left := x.r.PauseLeft(now); left > 0 && left >= x.r.Time.MaxWait(now) {
		return policy.ReasonRateLimitPause
	}
	if !x.r.Process.MakesRetry() {
		return policy.ReasonSwitchedOff
	}
	return policy.ReasonNone
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

// When an upstream is killed, all its requests in flight fail at once. The first failures find the
// breaker closed and the budget soon empty. Such a request waits a moment for the breaker to open.
// If it opens, the request is retried outside the budget: it queues with all others, and the
// breaker paces them.

// throughBreaker waits for the breaker after the request's connection was lost and the budget had no
// token. If the breaker opens, it returns the retry through its queue, and d otherwise.
func (x *Exchange) throughBreaker(d policy.Decision) policy.Decision {
	began := x.r.Time.Tick()
	end := x.sender.admitter.AwaitBreaker(x.r.Route.Terms, x.r.Time.Deadline)
	x.report.Queued(began)
	switch {
	case end == admission.DrainBegan:
		return policy.Decision{Class: d.Class, Why: policy.ReasonDraining}
	case end != admission.ClientLeft && !x.r.RetryWaitsInQueue(): // wait detects a client that left
		return d
	}
	return policy.Decision{Class: d.Class, Retry: true, Why: policy.ReasonReset}
}

// dryRun counts the retry that d would make, once per request, and makes none. If d has no retry, or
// something else forbids it, the reason stays.
func (x *Exchange) dryRun(res *policy.Result, s *policy.Situation, d policy.Decision) policy.Decision {
	if d.Retry {
		d = x.r.Route.Policy.After(d, res, s, nil, 0, backoff.Shared())
	}
	why := policy.ReasonDryRun
	if !x.report.HasCountedDryRun() {
		if !d.Retry {
			return d
		}
		why = x.wouldNot(res)
	}
	if why == policy.ReasonDryRun {
		x.report.CountDryRun(d.Why)
	}
	return policy.Decision{Class: d.Class, Why: why}
}

// wouldNot returns what else would forbid the retry, or ReasonDryRun if nothing would. It does not
// buffer the response, so a response without a length counts as one that fits.
func (x *Exchange) wouldNot(res *policy.Result) policy.Reason {
	if res.Cause == policy.CauseStatus && x.sender.att.Body().Exceeds(x.r.Route.ResponseBufferBytes) {
		return policy.ReasonResponseTooLarge
	}
	if b := x.r.Route.RetryBudget(); b != nil && !b.TryRetry(x.r.Time.SinceStart()) {
		return policy.ReasonBudgetExhausted
	}
	return policy.ReasonDryRun
}
