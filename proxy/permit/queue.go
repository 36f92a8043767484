package permit

import (
	"cmp"
	"time"

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

// queueTimeLeft returns how much longer the request may be queued, over all its waits.
func (ad *Admitter) queueTimeLeft() time.Duration {
	if ad.queueUntil.IsZero() {
		ad.queueUntil = ad.r.Time.Now().Add(ad.r.Dest.QueueTimeout)
	}
	return ad.queueUntil.Sub(ad.r.Time.Now())
}

// awaitBreaker waits until the breaker opens, or until it is clear that it stays closed.
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
