package admission

import (
	"cmp"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/queue"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// defaultLimitQueueTimeout applies if Terms.LimitQueueTimeout is 0. It is how long a request waits
// for a permit at an upstream that is healthy and at its concurrency limit. A longer wait would
// waste time in which the client could use another server.
const defaultLimitQueueTimeout = time.Second

// acquireSlow takes a permit from the queue of the upstream, or waits there for one.
func (ad *Admitter) acquireSlow(t *Ticket, now clock.Instant, unfinished bool) *Refusal {
	q := t.queue
	ad.waiter.Permit, ad.waiter.Request = breaker.Permit{}, breaker.Request{Key: ad.by.UrlKey(), Unfinished: unfinished}
	decision, v, place := q.Acquire(&ad.waiter, now.Sub(clock.Start), ad.ask.Began.Sub(clock.Start), ad.mayQueue)
	var end WaitEnd
	queued := decision == Wait
	if queued {
		began := ad.by.Tick()
		decision, end = ad.waitInQueue(q, place, began, v)
		ad.log.Queued(began)
	}
	t.permit = ad.waiter.Permit
	switch {
	case end == ClientLeft: // a permit may have come at the same moment
		return &clientLeft
	case decision == Wait && end == DrainBegan:
		return &drainEnded
	}
	switch decision {
	case Admit, ProbeNow:
		return nil
	case Drained:
		return &drainEnded
	case Dropped:
		holds := v != breaker.VerdictAtLimit && ad.ask.Terms.Queues && ad.queueTimeLeft() > 0
		if holds && !queued {
			return &drainEnded // only a drain makes a queueable request give up
		}
		return ad.refusedByQueue(v, holds)
	}
	return ad.refusedByQueue(v, false)
}

// refusedByQueue refuses the request because the queue gave no permit. dropped means that the queue
// was full.
func (ad *Admitter) refusedByQueue(v breaker.Verdict, dropped bool) *Refusal {
	o := policy.OutcomeFailFast
	switch {
	case v == breaker.VerdictAtLimit:
		o = policy.OutcomeOverloaded
	case dropped:
		o = policy.OutcomeQueueDropped
	case ad.ask.Terms.Queues:
		o = policy.OutcomeQueueTimeout
	}
	return &Refusal{Status: 503, Outcome: o, Reason: o.String(), Text: notTaking}
}

// waitInQueue waits for the decision of the queue.
func (ad *Admitter) waitInQueue(q *Queue, place queue.Ticket, began clock.Instant, v breaker.Verdict) (int32, WaitEnd) {
	terms := ad.ask.Terms
	wait := cmp.Or(terms.LimitQueueTimeout, defaultLimitQueueTimeout)
	switch {
	case v == breaker.VerdictBreakerOpen:
		wait = ad.queueTimeLeft()
		q.LogQueued(terms.QueueTimeout)
	case v == breaker.VerdictSuspect && terms.Queues:
		wait = max(wait, ad.queueTimeLeft())
	}
	until := earliest(ad.ask.Deadline, began.Add(wait))
	ad.waiter.ExpectedAt = 0
	end := ad.by.Await(until, &ad.waiter)
	if decision := ad.waiter.Decision.Load(); decision != Wait {
		return decision, end
	}
	decision := q.CancelWait(&ad.waiter, place)
	inTime := ad.ask.Deadline.IsZero() || ad.now().Before(ad.ask.Deadline)
	if decision == Wait && end == WaitedOut && v != breaker.VerdictAtLimit && inTime && q.TakeLast(&ad.waiter) {
		decision = Admit
	}
	return decision, end
}

// mayQueue reports whether the request may wait in the queue.
func (ad *Admitter) mayQueue(v breaker.Verdict) bool {
	if v != breaker.VerdictBreakerOpen {
		return true
	}
	return ad.ask.Terms.Queues && ad.queueTimeLeft() > 0 && !ad.by.DrainEnds(&ad.waiter)
}

// queueTimeLeft returns how much longer the request may be queued, over all its waits.
func (ad *Admitter) queueTimeLeft() time.Duration {
	now := ad.now()
	if ad.queueUntil.IsZero() {
		ad.queueUntil = now.Add(ad.ask.Terms.QueueTimeout)
	}
	return ad.queueUntil.Sub(now)
}

// losingPoll is how often a request asks whether the upstream still loses what is in flight.
const losingPoll = 5 * time.Millisecond

// AwaitBreaker waits until the breaker opens, or until it is clear that it stays closed. It does not wait
// beyond the deadline of the request; zero means that there is none.
func (ad *Admitter) AwaitBreaker(q *Queue, deadline clock.Instant) WaitEnd {
	for {
		now := ad.by.Tick()
		if !q.Guard.LosingInFlight(now.Sub(clock.Start)) || !deadline.IsZero() && !now.Before(deadline) {
			return WaitedOut
		}
		if end := ad.by.Await(now.Add(losingPoll), nil); end != WaitedOut {
			return end
		}
	}
}

// AwaitToken waits for the budget token of a retry, in the order of all such retries of the upstream, and
// begins t with it. It returns WaitedOut then, and NoToken if there was none within the time left.
func (ad *Admitter) AwaitToken(t *Ticket, q *BudgetQueue) WaitEnd {
	began := ad.by.Tick()
	ad.waiter.ExpectedAt = 0
	until := began.Add(ad.by.MaxWait(began))
	decision, place := q.Enter(&ad.waiter, until.Sub(clock.Start))
	end := WaitedOut
	if decision == Wait {
		end = ad.by.Await(until, &ad.waiter)
		ad.log.Queued(began)
		decision = q.Quit(&ad.waiter, place)
	}
	if decision == Admit {
		t.Reserve(q.budget)
	}
	switch {
	case end == ClientLeft, end == DrainBegan:
		return end
	case decision == Admit:
		return WaitedOut
	}
	return NoToken
}
