package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// run is the retry loop.
func (x *Exchange) run() request.End {
	var res policy.Result // of the last attempt
	var d policy.Decision // on it
	for {
		if why := x.admit(d); why != nil {
			return x.concludeUnsent(why)
		}
		x.attempt(&res, d)
		var stays bool
		if d, stays = x.decide(&res); !stays {
			return x.abandon()
		}
		if !d.Retry {
			return x.conclude(&res, d)
		}
		if end := x.wait(&res, d); end != admission.WaitedOut {
			return x.concludeWait(&res, d, end)
		}
	}
}

// admit gets the ticket of the first attempt, or of the retry d. If the route has a fallback, a request is
// not sent whose account is used up.
func (x *Exchange) admit(d policy.Decision) *admission.Refusal {
	now := x.r.Time.Began
	if d.Retry {
		now = x.r.Time.Tick()
	}
	if len(x.r.Route.Fallbacks) > 0 {
		if left := x.r.AccountLeft(x.r.Route, now); left > 0 {
			return admission.UsedUp(left)
		}
	}
	why := x.sender.admit(now)
	if why == nil && d.Retry {
		x.report.Retry(d)
	}
	return why
}

// attempt makes the first attempt, or the retry d, and sets res to its result.
func (x *Exchange) attempt(res *policy.Result, d policy.Decision) {
	x.attempts.begin(x.r.BeginAttempt())
	x.attempts.make(res, d.Free || x.sender.ticket.IsProbe())
	x.r.Time.Tick()
}

// wait waits before the retry d: for its budget token, if it has none yet, and for the backoff. Both
// begin now. All checks that could forbid the retry were made before. The client or a drain ends the
// wait early.
func (x *Exchange) wait(res *policy.Result, d policy.Decision) admission.WaitEnd {
	x.buffered.leave(res, &x.attempts.stream)
	x.report.AttemptLog.Waited(d.Wait)
	if d.Free {
		x.sender.freeRetries++
		return x.noWait()
	}
	if !x.sender.admitter.RetryIsFree() { // otherwise the breaker paces it, as long as the request may be queued
		x.r.BeginRetry()
	}
	x.sender.waited = d.Wait
	x.sender.askedWaitUsed = x.sender.askedWaitUsed || d.Token == policy.TokenWaived
	end := admission.WaitedOut
	if d.Token == policy.TokenQueued {
		began := x.r.Time.Tick()
		end = x.sender.admitter.AwaitToken(&x.sender.ticket, x.r.Route.Terms)
		queued := x.r.Time.Waited(began)
		x.report.AttemptLog.Waited(max(d.Wait, queued))
		d.Wait -= queued
	}
	switch {
	case end != admission.WaitedOut:
	case d.Wait > 0:
		end = x.backOff(d)
	default:
		x.report.WaitBegan()
		x.report.WaitEnded(0)
		return x.noWait()
	}
	return end
}

// backOff waits for the time of d.
func (x *Exchange) backOff(d policy.Decision) admission.WaitEnd {
	x.report.WaitBegan()
	began := x.r.Time.Tick()
	end := x.r.Await(began.Add(d.Wait), nil)
	x.report.WaitEnded(x.r.Time.Waited(began))
	x.report.Waited(d.Why.String(), began)
	return end
}

// noWait ends a wait of length 0. A short attempt does not watch the client, which may have left.
func (x *Exchange) noWait() admission.WaitEnd {
	if x.r.Conn.HungUp() {
		return admission.ClientLeft
	}
	return admission.WaitedOut
}
