package admission

import (
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
)

// AwaitBreaker registers w to be notified when the breaker opens. It reports false if the breaker
// is not closed any more.
func (d *Queue) AwaitBreaker(w *Waiter) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Guard.State().Breaker != breaker.Closed {
		return false
	}
	if !slices.Contains(d.awaitingBreaker, w) {
		w.Decision.Store(Wait)
		w.ExpectedAt = 0
		d.awaitingBreaker = append(d.awaitingBreaker, w)
	}
	return true
}

// StopAwaitingBreaker unregisters w after AwaitBreaker.
func (d *Queue) StopAwaitingBreaker(w *Waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awaitingBreaker = slices.DeleteFunc(d.awaitingBreaker, func(other *Waiter) bool { return other == w })
}

// notifyAwaitingBreaker notifies the waiters for the breaker that it is open. It is called with mu
// held.
func (d *Queue) notifyAwaitingBreaker() {
	for _, w := range d.awaitingBreaker {
		w.Notify(Admit)
	}
	d.awaitingBreaker = nil
}

// AcquireNow takes a permit for an attempt that neither waits for one nor is a probe.
func (d *Queue) AcquireNow(now time.Duration) (breaker.Permit, bool) {
	if permit, ok := d.Guard.AcquireFast(now); ok {
		return permit, true
	}
	var w Waiter
	switch decision, _, _ := d.Acquire(&w, now, func(breaker.Verdict) bool { return false }); decision {
	case Admit:
		return w.Permit, true
	case ProbeNow:
		d.HandleSignal(d.Guard.Release(w.Permit, now, breaker.AttemptEnd{Kind: breaker.Unsent}))
	}
	return breaker.Permit{}, false
}
