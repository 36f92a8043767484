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

// defaultLimitQueueTimeout applies if Route.LimitQueueTimeout is 0. It is how long a request waits
// for a permit at an upstream that is healthy and at its concurrency limit. A longer wait would
// waste time in which the client could use another server.
const defaultLimitQueueTimeout = time.Second

// acquireSlow takes a permit from the queue of the upstream, or waits there for one.
func (ad *Admitter) acquireSlow(a *attempt.Attempt, q *admission.Queue, now time.Duration) Result {
	ad.waiter.Request.Key = ad.r.UrlKey()
	decision, v, ticket := q.Acquire(&ad.waiter, now, ad.r.Process.Clock.Since(ad.r.Time.Began), ad.mayQueue)
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
		ad.returnUnused(a) // a permit may have arrived at the same moment
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
			return DrainEnded // only a drain makes a queueable request give up
		}
		return ad.rejectByQueue(v, holds)
	}
	return ad.rejectByQueue(v, false)
}

// rejectByQueue rejects the request because the queue gave no permit. dropped means that the queue
// was full.
func (ad *Admitter) rejectByQueue(v breaker.Verdict, dropped bool) Result {
	o := policy.OutcomeFailFast
	switch {
	case v == breaker.VerdictAtLimit:
		o = policy.OutcomeOverloaded
	case dropped:
		o = policy.OutcomeQueueDropped
	case ad.r.Route.Breaker == settings.BreakerQueue:
		o = policy.OutcomeQueueTimeout
	}
	ad.rejection = &Rejection{503, o, o.String(), notTaking}
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
	decision := q.CancelWait(&ad.waiter, t)
	inTime := ad.r.Time.Deadline.IsZero() || ad.r.Time.Now().Before(ad.r.Time.Deadline)
	if decision == admission.Wait && end == WaitedOut && v != breaker.VerdictAtLimit && inTime && q.TakeLast(&ad.waiter) {
		decision = admission.Admit
	}
	return decision, end
}

// mayQueue reports whether the request may wait in the queue.
func (ad *Admitter) mayQueue(v breaker.Verdict) bool {
	if v != breaker.VerdictBreakerOpen {
		return true
	}
	return ad.r.Dest.Breaker == settings.BreakerQueue && ad.queueTimeLeft() > 0 && !ad.endsWait(&ad.waiter)
}

// queueTimeLeft returns how much longer the request may be queued, over all its waits.
func (ad *Admitter) queueTimeLeft() time.Duration {
	if ad.queueUntil.IsZero() {
		ad.queueUntil = ad.r.Time.Now().Add(ad.r.Dest.QueueTimeout)
	}
	return ad.queueUntil.Sub(ad.r.Time.Now())
}

// losingPoll is how often a request asks whether the upstream still loses what is in flight.
const losingPoll = 5 * time.Millisecond

// awaitBreaker waits until the breaker opens, or until it is clear that it stays closed.
func (ad *Admitter) awaitBreaker() WaitEnd {
	g := ad.r.Route.UpstreamState.Admission.Guard
	for {
		now := ad.r.Time.Tick()
		if !g.LosingInFlight(ad.r.Process.Clock.Since(now)) || !ad.r.Time.Deadline.IsZero() && !now.Before(ad.r.Time.Deadline) {
			return WaitedOut
		}
		if end := ad.Await(now.Add(losingPoll), nil); end != WaitedOut {
			return end
		}
	}
}

// MaxDescriptorWait returns how long the attempt may wait for a descriptor.
func (ad *Admitter) MaxDescriptorWait() time.Duration {
	return ad.r.Time.MaxWait(ad.r.Time.Clock)
}

// AwaitDescriptor waits before the next try to get a descriptor. It reports false if the time is
// over, the client left, a drain began, or the queue no longer admits the attempt. The permit is
// returned during the wait, so that it does not count as silence of the upstream.
func (ad *Admitter) AwaitDescriptor(a *attempt.Attempt, wait time.Duration, until clock.Instant) bool {
	ad.returnUnused(a)
	ad.NoAttempt = NoDescriptor
	if !ad.r.Time.Clock.Before(until) {
		return false
	}
	ad.waiter.ExpectedAt = 0
	ad.waiter.Decision.Store(admission.Wait)
	end := ad.Await(request.Earliest(until, ad.r.Time.Clock.Add(wait)), &ad.waiter)
	switch end {
	case Left:
		ad.r.ClientLeft()
		return false
	case DrainBegan:
		ad.NoAttempt = DrainEnded
		return false
	}
	switch in := ad.Acquire(a, ad.r.Time.Tick()); in {
	case DeadlinePassed: // while no descriptor was free
		return false
	case Admitted:
		a.Postponed(ad.r.Time.Clock)
		ad.NoAttempt = Admitted
		return true
	case ClientLeft:
		ad.r.ClientLeft()
		return false
	default:
		ad.NoAttempt = in
		return false
	}
}
