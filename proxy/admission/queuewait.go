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

// acquireSlow takes a permit from the queue of the upstream, or waits there for one. ad.waiter has it then,
// also after a refusal: it may have come at the same moment.
func (ad *Admitter) acquireSlow(t *Ticket, now clock.Instant, a *Ask, unfinished bool) *Refusal {
	q := t.queue()
	w := &ad.waiter
	w.Permit, w.Request = breaker.Permit{}, breaker.Request{Key: ad.by.UrlKey(), Unfinished: unfinished}
	decision, v, place := q.Acquire(w, now.Sub(clock.Start), a.Began.Sub(clock.Start), func(v breaker.Verdict) bool { return ad.mayQueue(t, v) })
	var end WaitEnd
	queued := decision == Wait
	if queued {
		began := ad.by.Tick()
		decision, end = ad.waitInQueue(t, place, began, a.Deadline, v)
		ad.by.Queued(began)
	}
	switch {
	case end == ClientLeft:
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
		holds := v != breaker.VerdictAtLimit && t.terms.Queues && ad.queueTimeLeft(t) > 0
		if holds && !queued {
			return &drainEnded // only a drain makes a queueable request give up
		}
		return t.terms.refusedByQueue(v, holds)
	}
	return t.terms.refusedByQueue(v, false)
}

// refusedByQueue refuses the request because the queue gave no permit. dropped means that the queue
// was full.
func (terms *Terms) refusedByQueue(v breaker.Verdict, dropped bool) *Refusal {
	o := policy.OutcomeFailFast
	switch {
	case v == breaker.VerdictAtLimit:
		o = policy.OutcomeOverloaded
	case dropped:
		o = policy.OutcomeQueueDropped
	case terms.Queues:
		o = policy.OutcomeQueueTimeout
	}
	return &Refusal{Status: 503, Outcome: o, Reason: o.String(), Text: notTaking}
}

// waitInQueue waits for the decision of the queue.
func (ad *Admitter) waitInQueue(t *Ticket, place queue.Ticket, began, deadline clock.Instant, v breaker.Verdict) (int32, WaitEnd) {
	q, terms := t.queue(), t.terms
	wait := cmp.Or(terms.LimitQueueTimeout, defaultLimitQueueTimeout)
	switch {
	case v == breaker.VerdictBreakerOpen:
		wait = ad.queueTimeLeft(t)
		q.LogQueued(terms.QueueTimeout)
	case v == breaker.VerdictSuspect && terms.Queues:
		wait = max(wait, ad.queueTimeLeft(t))
	}
	until := clock.Earliest(deadline, began.Add(wait))
	w := &ad.waiter
	end := ad.await(until, 0)
	if decision := w.Decision.Load(); decision != Wait {
		return decision, end
	}
	decision := q.CancelWait(w, place)
	inTime := deadline.IsZero() || t.now().Before(deadline)
	if decision == Wait && end == WaitedOut && v != breaker.VerdictAtLimit && inTime && q.TakeLast(w) {
		decision = Admit
	}
	return decision, end
}

// mayQueue reports whether the request may wait in the queue.
func (ad *Admitter) mayQueue(t *Ticket, v breaker.Verdict) bool {
	if v != breaker.VerdictBreakerOpen {
		return true
	}
	return t.terms.Queues && ad.queueTimeLeft(t) > 0 && !ad.by.DrainEnds(&ad.waiter)
}

// queueTimeLeft returns how much longer the request may be queued, over all its waits.
func (ad *Admitter) queueTimeLeft(t *Ticket) time.Duration {
	now := t.now()
	if ad.queueUntil.IsZero() {
		ad.queueUntil = now.Add(t.terms.QueueTimeout)
	}
	return ad.queueUntil.Sub(now)
}

// losingPoll is how often a request asks whether the upstream still loses what is in flight.
const losingPoll = 5 * time.Millisecond

// AwaitBreaker waits until the breaker opens, or until it is clear that it stays closed. It does not wait
// beyond the deadline of the request; zero means that there is none.
func (ad *Admitter) AwaitBreaker(terms *Terms, deadline clock.Instant) WaitEnd {
	for {
		now := ad.by.Tick()
		if !terms.Queue.Guard.LosingInFlight(now.Sub(clock.Start)) || !deadline.IsZero() && !now.Before(deadline) {
			return WaitedOut
		}
		if end := ad.by.Await(now.Add(losingPoll), nil); end != WaitedOut {
			return end
		}
	}
}

// AwaitToken waits for the budget token of a retry, in the order of all such retries of the upstream, and
// begins t with it. It returns WaitedOut then, and NoToken if there was none within the time left.
func (ad *Admitter) AwaitToken(t *Ticket, terms *Terms) WaitEnd {
	q := terms.Tokens
	began := ad.by.Tick()
	w := &ad.waiter
	until := began.Add(ad.by.MaxWait(began))
	decision, place := q.Enter(w, until.Sub(clock.Start))
	end := WaitedOut
	if decision == Wait {
		end = ad.await(until, 0)
		ad.by.Queued(began)
		decision = q.Quit(w, place)
	}
	if decision == Admit {
		t.Reserve(terms)
	}
	switch {
	case end == ClientLeft, end == DrainBegan:
		return end
	case decision == Admit:
		return WaitedOut
	}
	return NoToken
}
