package exchange

import (
	"cmp"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/queue"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// defaultLimitQueueTimeout is Route.LimitQueueTimeout where that is 0: how long a request waits for a permit at an upstream that is up
// and as busy as it bears. More would be time in which the client could have
// gone elsewhere.
const defaultLimitQueueTimeout = time.Second

// admission is what the queue of an upstream made of an attempt.
type admissionResult uint8

const (
	admitted admissionResult = iota
	notAdmitted
	clientLeftQueue
	drainEndedWait
	deadlinePassed // the deadline of the request has passed
)

// acquirePermit takes a permit for the next attempt and waits for it if the route
// allows. The wait costs no retry and no budget.
func (a *admitter) acquirePermit(now clock.Instant) admissionResult {
	if !a.r.Deadline.IsZero() && !now.Before(a.r.Deadline) {
		return deadlinePassed
	}
	d := a.r.Dest.UpstreamState.Admission
	t := a.r.Process.Clock.Since(now)
	a.waiter.Request.Unfinished = !a.r.Body.IsComplete()
	in := admitted
	if permit, ok := d.Guard.AcquireFast(t); ok {
		a.att.Permit = permit
	} else {
		in = a.acquirePermitSlow(d, t)
	}
	if in == admitted && a.waiter.Request.Unfinished {
		a.att.Permit = d.Guard.Sending(a.att.Permit)
	}
	return in
}

// noteSent tells the Guard if the request of the attempt was sent whole.
func (a *admitter) noteSent() {
	if a.att.Permit.Sending() && a.att.Progress.Load() == attempt.Sent {
		d := a.r.Dest.UpstreamState.Admission
		a.att.Permit = d.Guard.Sent(a.att.Permit, a.r.Process.Clock.Since(a.att.SentAt))
	}
}

func (a *admitter) acquirePermitSlow(d *admission.Queue, now time.Duration) admissionResult {
	a.waiter.Request.Key = a.r.UrlKey()
	decision, v, ticket := d.Acquire(&a.waiter, now, a.mayQueue)
	a.verdict = v
	var end waitEnd
	queued := decision == admission.Wait
	if queued {
		began := a.r.Tick()
		decision, end = a.waitInQueue(d, ticket, began, v)
		a.report.Queued(began)
	}
	a.att.Permit, a.waiter.Permit = a.waiter.Permit, breaker.Permit{}
	switch {
	case end == clientLeft:
		a.returnUnusedPermit() // it may have got a permit at the same moment
		return clientLeftQueue
	case decision == admission.Wait && end == drainBegan:
		return drainEndedWait
	}
	switch decision {
	case admission.Admit, admission.ProbeNow:
		return admitted
	case admission.Drained:
		return drainEndedWait
	case admission.Dropped:
		holds := v != breaker.VerdictAtLimit && a.r.Dest.Breaker == settings.BreakerQueue && a.queueTimeLeft() > 0
		if holds && !queued {
			return drainEndedWait // nothing else makes one impatient that may be held
		}
		a.droppedFromQueue = holds
	}
	return notAdmitted
}

// waitInQueue waits for the decision of the queue.
func (a *admitter) waitInQueue(d *admission.Queue, t queue.Ticket, began clock.Instant, v breaker.Verdict) (int32, waitEnd) {
	wait := cmp.Or(a.r.Dest.LimitQueueTimeout, defaultLimitQueueTimeout)
	switch {
	case v == breaker.VerdictBreakerOpen:
		wait = a.queueTimeLeft()
		d.LogQueued(a.r.Dest.QueueTimeout)
	case v == breaker.VerdictSuspect && a.r.Dest.Breaker == settings.BreakerQueue:
		wait = max(wait, a.queueTimeLeft())
	}
	until := began.Add(wait)
	if !a.r.Deadline.IsZero() && a.r.Deadline.Before(until) {
		until = a.r.Deadline
	}
	a.waiter.ExpectedAt = 0
	end := a.await(until, &a.waiter)
	if decision := a.waiter.Decision.Load(); decision != admission.Wait {
		return decision, end
	}
	return d.CancelWait(&a.waiter, t), end
}

// mayQueue reports whether the request may wait in the queue.
func (a *admitter) mayQueue(v breaker.Verdict) bool {
	if v != breaker.VerdictBreakerOpen {
		return true
	}
	return a.r.Dest.Breaker == settings.BreakerQueue && a.queueTimeLeft() > 0 && !a.endsWait(&a.waiter)
}

// queueTimeLeft returns how much longer the request may be queued, all waits together.
func (a *admitter) queueTimeLeft() time.Duration {
	if a.queueUntil.IsZero() {
		a.queueUntil = a.r.Now().Add(a.r.Dest.QueueTimeout)
	}
	return a.queueUntil.Sub(a.r.Now())
}

// returnUnusedPermit returns a permit that was not used.
func (a *admitter) returnUnusedPermit() {
	if permit := a.att.TakePermit(); permit.Taken() {
		d := a.r.Dest.UpstreamState.Admission
		d.HandleSignal(d.Guard.Release(permit, a.r.Process.Clock.Elapsed(), breaker.AttemptEnd{Kind: breaker.Unsent}))
	}
}

// releasePermit returns the permit of the attempt and tells the Guard its result.
func (a *admitter) releasePermit(res *policy.Attempt) {
	a.noteSent()
	permit := a.att.TakePermit()
	if !permit.Taken() {
		return
	}
	d, t := a.r.Dest.UpstreamState.Admission, a.r.Process.Clock.Since(a.r.Clock)
	e := breaker.AttemptEnd{Kind: breaker.Responded, Status: res.JudgedStatus()}
	switch {
	case res.Cause != policy.CauseStatus || e.Status >= 500:
		e = a.r.AttemptEnd(a.att, res)
	case d.Guard.WantsKey(t):
		e.Key = a.r.UrlKey()
	}
	d.HandleSignal(d.Guard.Release(permit, t, e))
}

// awaitsLateResponse reports whether the connection of the attempt with the permit is still read
// when its client does not wait any more. A request that was not sent whole is never answered.
func (a *admitter) awaitsLateResponse(permit breaker.Permit) bool {
	return permit.Probe() && a.att.SentSome() && a.att.Up != nil && a.att.Progress.Load() == attempt.Sent
}

// abandon is abandonPermit once no pump uses a connection that is still read.
func (a *admitter) abandon(kind breaker.EndKind) {
	a.noteSent()
	permit := a.att.TakePermit()
	if !permit.Taken() {
		return
	}
	d, t := a.r.Dest.UpstreamState.Admission, a.r.Process.Clock.Elapsed()
	if !a.att.SentSome() {
		d.HandleSignal(d.Guard.Release(permit, t, breaker.AttemptEnd{Kind: breaker.Unsent}))
		return
	}
	listens := a.awaitsLateResponse(permit)
	e := breaker.AttemptEnd{Kind: kind, Key: a.r.UrlKey(), Closed: !listens}
	late, signal := d.Guard.Abandon(permit, t, e)
	if listens {
		d.AwaitLateResponse(a.att.Take(), late)
	}
	d.HandleSignal(signal)
}

// What an upstream had in hand when it was killed is lost all at once, and the
// first of it to be noticed finds the breaker closed and the budget soon empty.
// Such a request waits for the little while in which it turns out whether the
// breaker opens. If it does, the request is sent again outside the budget: it
// queues with all others, and the breaker paces them.

// mayOutlive reports whether a request is retried after all whose connection was lost and for
// which the budget had no token. d is then that retry.
func (a *admitter) mayOutlive(res *policy.Attempt, d *policy.Decision) bool {
	if d.Why != policy.ReasonBudgetExhausted || res.Cause != policy.CauseReset || a.att.Fault.Breaks() || a.r.Route.Breaker != settings.BreakerQueue {
		return false
	}
	began := a.r.Tick()
	end := a.awaitBreaker()
	a.report.Queued(began)
	switch {
	case end == drainBegan:
		d.Why = policy.ReasonDraining
		return false
	case end != clientLeft && !a.r.RetryWaitsInQueue(): // who left is found out by pause
		return false
	}
	d.Retry, d.Wait, d.Why = true, 0, policy.ReasonReset
	return true
}

// awaitBreaker waits until the breaker opens, or it is clear that it does not.
func (a *admitter) awaitBreaker() waitEnd {
	d := a.r.Route.UpstreamState.Admission
	defer d.StopAwaitingBreaker(&a.waiter)
	for d.AwaitBreaker(&a.waiter) {
		until, losing := d.Guard.LosingInFlight(a.r.Process.Clock.Since(a.r.Tick()))
		if !losing || !a.r.Deadline.IsZero() && !a.r.Clock.Before(a.r.Deadline) {
			break
		}
		if end := a.await(request.Earliest(a.r.Deadline, clock.Start.Add(until)), &a.waiter); end != waitedOut {
			return end
		}
	}
	return waitedOut
}
