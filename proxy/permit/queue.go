package permit

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

// defaultLimitQueueTimeout is Route.LimitQueueTimeout where that is 0: how long a request waits for a
// permit at an upstream that is up and as busy as it bears. More would be time in which the client
// could have gone elsewhere.
const defaultLimitQueueTimeout = time.Second

// Acquire takes a permit for the next attempt and waits for it if the route
// allows. The wait costs no retry and no budget.
func (ad *Admitter) Acquire(a *attempt.Attempt, now clock.Instant) Result {
	if !ad.r.Time.Deadline.IsZero() && !now.Before(ad.r.Time.Deadline) {
		return DeadlinePassed
	}
	q := ad.r.Dest.UpstreamState.Admission
	t := ad.r.Process.Clock.Since(now)
	ad.waiter.Request.Unfinished = !ad.r.Body.IsComplete()
	in := Admitted
	if permit, ok := q.Guard.AcquireFast(t); ok {
		a.Permit = permit
	} else {
		in = ad.acquireSlow(a, q, t)
	}
	if in == Admitted && ad.waiter.Request.Unfinished {
		a.Permit = q.Guard.Sending(a.Permit)
	}
	return in
}

func (ad *Admitter) acquireSlow(a *attempt.Attempt, q *admission.Queue, now time.Duration) Result {
	ad.waiter.Request.Key = ad.r.UrlKey()
	decision, v, ticket := q.Acquire(&ad.waiter, now, ad.mayQueue)
	ad.verdict = v
	var end WaitEnd
	queued := decision == admission.Wait
	if queued {
		began := ad.r.Time.Tick()
		decision, end = ad.waitInQueue(q, ticket, began, v)
		ad.report.Queued(began)
	}
	a.Permit, ad.waiter.Permit = ad.waiter.Permit, breaker.Permit{}
	switch {
	case end == Left:
		ad.returnUnused(a) // it may have got a permit at the same moment
		return ClientLeft
	case decision == admission.Wait && end == DrainBegan:
		return DrainEnded
	}
	switch decision {
	case admission.Admit, admission.ProbeNow:
		return Admitted
	case admission.Drained:
		return DrainEnded
	case admission.Dropped:
		holds := v != breaker.VerdictAtLimit && ad.r.Dest.Breaker == settings.BreakerQueue && ad.queueTimeLeft() > 0
		if holds && !queued {
			return DrainEnded // nothing else makes one impatient that may be held
		}
		ad.droppedFromQueue = holds
	}
	return Rejected
}

// waitInQueue waits for the decision of the queue.
func (ad *Admitter) waitInQueue(q *admission.Queue, t queue.Ticket, began clock.Instant, v breaker.Verdict) (int32, WaitEnd) {
	wait := cmp.Or(ad.r.Dest.LimitQueueTimeout, defaultLimitQueueTimeout)
	switch {
	case v == breaker.VerdictBreakerOpen:
		wait = ad.queueTimeLeft()
		q.LogQueued(ad.r.Dest.QueueTimeout)
	case v == breaker.VerdictSuspect && ad.r.Dest.Breaker == settings.BreakerQueue:
		wait = max(wait, ad.queueTimeLeft())
	}
	until := began.Add(wait)
	if !ad.r.Time.Deadline.IsZero() && ad.r.Time.Deadline.Before(until) {
		until = ad.r.Time.Deadline
	}
	ad.waiter.ExpectedAt = 0
	end := ad.Await(until, &ad.waiter)
	if decision := ad.waiter.Decision.Load(); decision != admission.Wait {
		return decision, end
	}
	return q.CancelWait(&ad.waiter, t), end
}

// mayQueue reports whether the request may wait in the queue.
func (ad *Admitter) mayQueue(v breaker.Verdict) bool {
	if v != breaker.VerdictBreakerOpen {
		return true
	}
	return ad.r.Dest.Breaker == settings.BreakerQueue && ad.queueTimeLeft() > 0 && !ad.endsWait(&ad.waiter)
}

// queueTimeLeft returns how much longer the request may be queued, all waits together.
func (ad *Admitter) queueTimeLeft() time.Duration {
	if ad.queueUntil.IsZero() {
		ad.queueUntil = ad.r.Time.Now().Add(ad.r.Dest.QueueTimeout)
	}
	return ad.queueUntil.Sub(ad.r.Time.Now())
}

// What an upstream had in hand when it was killed is lost all at once, and the
// first of it to be noticed finds the breaker closed and the budget soon empty.
// Such a request waits for the little while in which it turns out whether the
// breaker opens. If it does, the request is sent again outside the budget: it
// queues with all others, and the breaker paces them.

// MayOutlive reports whether a request is retried after all whose connection was lost and for
// which the budget had no token. again is then that retry.
func (ad *Admitter) MayOutlive(a *attempt.Attempt, res *policy.Attempt, again *policy.Decision) bool {
	if again.Why != policy.ReasonBudgetExhausted || res.Cause != policy.CauseReset || a.Fault.Breaks() || ad.r.Route.Breaker != settings.BreakerQueue {
		return false
	}
	began := ad.r.Time.Tick()
	end := ad.awaitBreaker()
	ad.report.Queued(began)
	switch {
	case end == DrainBegan:
		again.Why = policy.ReasonDraining
		return false
	case end != Left && !ad.r.RetryWaitsInQueue(): // who left is found out by pause
		return false
	}
	again.Retry, again.Wait, again.Why = true, 0, policy.ReasonReset
	return true
}

// awaitBreaker waits until the breaker opens, or it is clear that it does not.
func (ad *Admitter) awaitBreaker() WaitEnd {
	q := ad.r.Route.UpstreamState.Admission
	defer q.StopAwaitingBreaker(&ad.waiter)
	for q.AwaitBreaker(&ad.waiter) {
		until, losing := q.Guard.LosingInFlight(ad.r.Process.Clock.Since(ad.r.Time.Tick()))
		if !losing || !ad.r.Time.Deadline.IsZero() && !ad.r.Time.Clock.Before(ad.r.Time.Deadline) {
			break
		}
		if end := ad.Await(request.Earliest(ad.r.Time.Deadline, clock.Start.Add(until)), &ad.waiter); end != WaitedOut {
			return end
		}
	}
	return WaitedOut
}
