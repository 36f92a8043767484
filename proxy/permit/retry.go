package permit

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// CountRetry counts the retry that is sent now and spends its budget token.
func (ad *Admitter) CountRetry(again policy.Decision) {
	if ad.report.Trace.Request != nil {
		ad.report.Trace.Why, ad.report.Trace.Wait = again.Why, again.Wait
	}
	ad.HasBudgetToken = false
	ad.report.Observer.Retry(again.Why)
}

// ReturnBudgetToken returns the budget token of a retry that is not sent.
func (ad *Admitter) ReturnBudgetToken() {
	if ad.HasBudgetToken {
		ad.HasBudgetToken = false
		ad.r.Route.UpstreamState.RetryBudget.GiveBack()
	}
}

// RetryBlockedBy returns why a retry that the policy allows must not be made, or ReasonNone. It is
// called before the wait, like the policy.
func (ad *Admitter) RetryBlockedBy(a *attempt.Attempt, res *policy.Attempt) policy.Reason {
	if ad.r.PauseTooLong(res) {
		return policy.ReasonRetryAfterTooLong
	}
	now := ad.r.Time.Now()
	if left := ad.r.PauseLeft(now); left > 0 && left >= ad.r.Time.MaxWait(now) {
		return policy.ReasonRateLimitPause
	}
	if !ad.r.Process.MakesRetry() {
		return policy.ReasonSwitchedOff
	}
	if !ad.throttlerAllows(a, now) {
		return policy.ReasonClientThrottled
	}
	return policy.ReasonNone
}

// HedgeAllowed checks what RetryBlockedBy checks, and two conditions for hedges alone: the breaker
// is closed, and no rate-limit pause is running. If asked is set, the throttler expects the
// result.
func (ad *Admitter) HedgeAllowed(now clock.Instant) (asked, pass bool) {
	u := ad.r.Route.UpstreamState
	if !u.Admission.Guard.BreakerClosed() || ad.r.PauseLeft(now) > 0 || !ad.r.Process.MakesRetry() {
		return false, false
	}
	return ad.checkThrottler(now)
}

// DryRun counts the retry that again would make, once per request, and makes none. If again has no
// retry, or something else forbids it, the reason stays.
func (ad *Admitter) DryRun(a *attempt.Attempt, res *policy.Attempt, again policy.Decision) policy.Decision {
	why := policy.ReasonDryRun
	if !ad.report.WouldRetry {
		if !again.Retry {
			return again
		}
		why = ad.wouldNot(a, res)
	}
	if why == policy.ReasonDryRun && !ad.report.WouldRetry {
		ad.report.WouldRetry = true
		ad.report.Observer.WouldRetry(again.Why)
	}
	return policy.Decision{Class: again.Class, Why: why}
}

// wouldNot returns what else would forbid the retry, or ReasonDryRun if nothing would. It does not
// buffer the response, so a response without a length counts as one that fits.
func (ad *Admitter) wouldNot(a *attempt.Attempt, res *policy.Attempt) policy.Reason {
	f := a.Body.Framing
	if res.Cause == policy.CauseStatus && f.Kind == http1.BodyLength && f.Length > ad.r.Route.ResponseBufferBytes {
		return policy.ReasonResponseTooLarge
	}
	if b := ad.r.Route.RetryBudget(); b != nil && !b.TryRetry(ad.r.Process.Clock.Since(ad.r.Time.Clock)) {
		return policy.ReasonBudgetExhausted
	}
	return policy.ReasonDryRun
}

// When an upstream is killed, all its requests in flight fail at once. The first failures find the
// breaker closed and the budget soon empty. Such a request waits a moment for the breaker to open.
// If it opens, the request is retried outside the budget: it queues with all others, and the
// breaker paces them.

// MayRetryThroughBreaker waits for the breaker after the request's connection was lost and the
// budget had no token. It reports whether the breaker opened and the request is retried through
// its queue. again is then that retry.
func (ad *Admitter) MayRetryThroughBreaker(a *attempt.Attempt, res *policy.Attempt, again *policy.Decision) bool {
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
	case end != Left && !ad.r.RetryWaitsInQueue(): // pause detects a client that left
		return false
	}
	again.Retry, again.Wait, again.Why = true, 0, policy.ReasonReset
	return true
}

// Rejection is the response to a request whose next attempt is not sent.
type Rejection struct {
	Status  int // of our own response, if there was no real one
	Outcome policy.Outcome
	Reason  string
	Text    string
}

// notTaking is the error text if the upstream's queue admits nothing.
const notTaking = "the upstream does not accept requests"

// gaveUp returns the Rejection for a reason that has an outcome of its own.
func gaveUp(status int, why policy.Reason, text string) Rejection {
	return Rejection{status, policy.GaveUp(why), why.String(), text}
}

// Rejection returns why the attempt was not sent.
func (ad *Admitter) Rejection(in Result) Rejection {
	switch in {
	case DrainEnded:
		return gaveUp(503, policy.ReasonDraining, notTaking)
	case DeadlinePassed:
		return gaveUp(504, policy.ReasonDeadline, "the time for the request was over before it could be sent")
	}
	switch ad.rejectedBy {
	case rejectedByPause:
		t := gaveUp(429, policy.ReasonRateLimitPause, "the upstream asked for a pause that is not over")
		if ad.r.Attempts == 0 {
			t.Outcome = policy.OutcomeRateLimitPause
		}
		return t
	case rejectedByRateLimit:
		t := gaveUp(429, policy.ReasonRateLimited, "the rate limit of the upstream is used up")
		if ad.r.Attempts == 0 {
			t.Outcome = policy.OutcomeRateLimited
		}
		return t
	case rejectedByThrottling:
		return Rejection{503, policy.OutcomeClientThrottled, policy.ReasonClientThrottled.String(), "the upstream rejects nearly all requests"}
	}
	return Rejection{503, ad.queueOutcome(), ad.queueOutcome().String(), notTaking}
}

// queueOutcome returns the outcome of a request that got no permit from the upstream's queue.
func (ad *Admitter) queueOutcome() policy.Outcome {
	switch {
	case ad.verdict == breaker.VerdictAtLimit:
		return policy.OutcomeOverloaded
	case ad.droppedFromQueue:
		return policy.OutcomeQueueDropped
	case ad.r.Route.Breaker == settings.BreakerQueue:
		return policy.OutcomeQueueTimeout
	}
	return policy.OutcomeFailFast
}

// Crowd is how many requests must wait at once before it is worth compacting their memory.
const Crowd = 64

// WaitEnd is what ended a wait on a client's connection.
type WaitEnd uint8

const (
	WaitedOut WaitEnd = iota
	Left
	DrainBegan
	Notified
)

// Await waits until t on the client's own connection, with its read deadline as the timer. The
// wait ends at once if the client leaves or the process drains. Bytes that arrive during the wait
// belong to the next request and are kept. If w is not nil, its queue ends the wait too, and a
// drain ends it only if endsWait reports true.
func (ad *Admitter) Await(t clock.Instant, w *admission.Waiter) WaitEnd {
	c := ad.r.Conn
	if ad.r.Process.Waiting.Add(1) > Crowd {
		ad.r.Conn.Spans.Compact()
	}
	c.Phase.Store(downstream.PhaseBackoff)
	defer func() {
		ad.r.Process.Waiting.Add(-1)
		c.Phase.Store(downstream.PhaseBusy)
		c.ReadAt = clock.LongAgo // whoever woke this goroutine may have moved the deadline to that value
	}()
	for {
		c.ReadAt = t
		_ = c.NC.SetReadDeadline(ad.r.Process.Clock.At(t))
		if w != nil && w.Decision.Load() != admission.Wait {
			return Notified
		}
		if ad.endsWait(w) {
			return DrainBegan
		}
		err := ad.awaitRead(t)
		switch {
		case err != nil && !rawsocket.IsTimeout(err):
			return Left
		case w != nil && w.Decision.Load() != admission.Wait:
			return Notified
		case ad.endsWait(w):
			return DrainBegan
		}
		if !ad.r.Process.Clock.Now().Before(t) {
			return WaitedOut
		}
	}
}

// awaitRead reads what arrives before t. If the buffer is full, it only polls whether the client
// is still there.
func (ad *Admitter) awaitRead(t clock.Instant) error {
	c := ad.r.Conn
	if c.W < len(c.In) {
		return c.Fill()
	}
	time.Sleep(min(downstream.PollEvery, t.Sub(ad.r.Process.Clock.Now())))
	if c.HungUp() {
		return attempt.ErrClientGone
	}
	return nil
}

// endsWait reports whether a drain ends the wait of w. A nil w waits for something other than a
// queue. A queued request was accepted before the drain. It continues to wait while a permit may
// come in time for a response and its upstream is up. No retry waits during a drain.
func (ad *Admitter) endsWait(w *admission.Waiter) bool {
	s := ad.r.Process
	if !s.Draining.Load() {
		return false
	}
	if w == nil || ad.r.Retries > 0 || ad.r.Route.UpstreamState.Admission.AdmitsOnlyProbes() {
		return true
	}
	end := time.Duration(s.WaitsEnd.Load())
	return w.ExpectedAt > end || s.Clock.Elapsed() >= end
}

// AdmitsAtOnce reports whether an attempt would get its permit without a wait, as far as can be seen
// without asking for one. With a rate limit that cannot be seen.
func (ad *Admitter) AdmitsAtOnce() bool {
	return !ad.r.Route.RateLimit.Limited() && ad.r.PauseLeft(ad.r.Time.Clock) <= 0 && ad.r.Route.UpstreamState.Admission.HasFreePermit()
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
	ad.NoAttempt = policy.ReasonNoDescriptors
	if !ad.r.Time.Clock.Before(until) {
		return false
	}
	ad.waiter.ExpectedAt = 0
	ad.waiter.Decision.Store(admission.Wait)
	end := ad.Await(request.Earliest(until, ad.r.Time.Clock.Add(wait)), &ad.waiter)
	switch end {
	case Left:
		ad.r.ClientEnd.Store(request.ClientGone)
		return false
	case DrainBegan:
		ad.NoAttempt = policy.ReasonDraining
		return false
	}
	switch ad.Acquire(a, ad.r.Time.Tick()) {
	case Admitted:
		ad.NoAttempt = policy.ReasonNone
		a.Began = ad.r.Time.Clock
		return true
	case ClientLeft:
		ad.r.ClientEnd.Store(request.ClientGone)
	case DrainEnded:
		ad.NoAttempt = policy.ReasonDraining
	}
	return false
}
