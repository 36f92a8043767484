package proxy

import (
	"slices"

	"github.com/retryproxy/retryproxy/policy"
)

// What an upstream had in hand when it was killed is lost all at once, and the
// first of it to be noticed finds the breaker closed and the budget soon empty.
// Such a request waits for the little while in which it turns out whether the
// breaker opens. If it does, the request is sent again outside the budget: it
// queues with all others, and the breaker paces them.

// mayOutlive reports whether a request whose connection was lost, and which the
// budget did not let repeat, is retried after all; d is then that retry.
func (x *exchange) mayOutlive(a *policy.Attempt, d *policy.Decision) bool {
	if d.Why != policy.ReasonBudgetExhausted || a.Cause != policy.CauseReset || x.fault.Breaks() || x.route.Breaker != BreakerQueue {
		return false
	}
	began := x.tick()
	end := x.awaitBreaker()
	x.observer.Queued(x.tick().Sub(began))
	x.traceWait(waitHeld, began)
	switch {
	case end == drainBegan:
		d.Why = policy.ReasonDraining
		return false
	case end != clientLeft && !x.retryWaitsInQueue(): // who left is found out by pause
		return false
	}
	d.Retry, d.Wait, d.Why = true, 0, policy.ReasonReset
	return true
}

// awaitBreaker waits until the breaker opens, or it is clear that it does not.
func (x *exchange) awaitBreaker() waitEnd {
	d := x.route.upstream.door
	defer d.stopAwaitingBreaker(&x.waiter)
	for d.awaitBreaker(&x.waiter) {
		until, losing := d.guard.LosingInFlight(x.set.server.since(x.tick()))
		if !losing || !x.deadline.IsZero() && !x.clock.Before(x.deadline) {
			break
		}
		if end := x.c.await(earliest(x.deadline, start.Add(until)), &x.waiter); end != waitedOut {
			return end
		}
	}
	return waitedOut
}

// awaitBreaker has w told when the breaker opens; false: it is not closed any more.
func (d *admissionQueue) awaitBreaker(w *waiter) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.guard.State().Breaker != policy.BreakerClosed {
		return false
	}
	if !slices.Contains(d.awaitingBreaker, w) {
		w.decision.Store(decisionWait)
		w.expectedAt = 0
		d.awaitingBreaker = append(d.awaitingBreaker, w)
	}
	return true
}

func (d *admissionQueue) stopAwaitingBreaker(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awaitingBreaker = slices.DeleteFunc(d.awaitingBreaker, func(other *waiter) bool { return other == w })
}

// notifyAwaitingBreaker tells those who wait for it that the breaker is open. Called with mu held.
func (d *admissionQueue) notifyAwaitingBreaker() {
	for _, w := range d.awaitingBreaker {
		w.notify(decisionAdmit)
	}
	d.awaitingBreaker = nil
}
