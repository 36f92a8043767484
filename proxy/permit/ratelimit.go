package permit

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// waitOutPause waits for the end of the request's rate-limit pause, if the request has the time.
// It returns the time after the wait. No permit is held during the wait.
func (ad *Admitter) waitOutPause(now clock.Instant) (Result, clock.Instant) {
	for {
		left := ad.r.PauseLeft(now)
		if left <= 0 {
			return Admitted, now
		}
		room := ad.r.Time.MaxWait(now)
		wait, fits := ratelimit.PauseWait(left, room, backoff.Shared())
		switch {
		case room <= 0:
			return DeadlinePassed, now
		case !fits:
			return ad.reject(429, policy.ReasonRateLimitPause, policy.OutcomeRateLimitPause, "the upstream asked for a pause that is not over", wholeSeconds(left)), now
		}
		end := ad.awaitPaused(now.Add(wait))
		ad.report.Queued(now)
		switch end {
		case Left:
			return ClientLeft, now
		case DrainBegan:
			ad.RetryAfter = wholeSeconds(left)
			return DrainEnded, now
		}
		now = ad.r.Time.Clock // other requests may have met a 429 during the wait
	}
}

// awaitPaused waits until t and counts the request as paused, even if the wait ends in a panic.
func (ad *Admitter) awaitPaused(t clock.Instant) WaitEnd {
	ad.r.Process.Paused.Add(1)
	defer ad.r.Process.Paused.Add(-1)
	return ad.Await(t, nil)
}

// wholeSeconds rounds up to whole seconds, for a Retry-After.
func wholeSeconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// awaitRateLimit waits for a slot of the upstream's rate limit. It returns the time after the
// wait.
func (ad *Admitter) awaitRateLimit(s *admission.RateLimits, now clock.Instant) (Result, clock.Instant) {
	room := min(max(ad.r.Route.RateLimit.Wait, s.MinWait()), ad.r.Time.MaxWait(now))
	key := s.KeyOf(ad.r.HTTP, ad.r.Tokens.Model())
	ad.waiter.Use = nil
	if s.CountsTokens() {
		ad.waiter.Use = ad.r.NeedTokens().Expect()
	}
	q, e := s.Enter(key, &ad.waiter, ad.r.Process.Clock.Since(now), room)
	switch e.Decision {
	case admission.Admit:
		ad.rateLimitSlot = q
		ad.r.Tokens.Taken(q)
		return Admitted, now
	case admission.Dropped:
		return ad.overRateLimit(e.Wait), now
	}
	ad.waiter.ExpectedAt = ad.r.Process.Clock.Since(now) + e.Wait
	end := ad.Await(now.Add(room), &ad.waiter)
	later := ad.r.Time.Tick()
	ad.report.Observer.Queued(later.Sub(now))
	if q.Quit(&ad.waiter, e.Ticket, ad.r.Process.Clock.Since(later)) {
		switch end {
		case Left:
			return ClientLeft, later
		case DrainBegan:
			ad.RetryAfter = wholeSeconds(max(ad.waiter.ExpectedAt-ad.r.Process.Clock.Since(later), time.Second))
			return DrainEnded, later
		}
		return ad.overRateLimit(e.Wait), later
	}
	ad.rateLimitSlot = q
	ad.r.Tokens.Taken(q)
	if end == Left { // it was let in at the same moment
		return ClientLeft, later
	}
	return Admitted, later
}

// overRateLimit rejects the request because of the rate limit.
func (ad *Admitter) overRateLimit(wait time.Duration) Result {
	return ad.reject(429, policy.ReasonRateLimited, policy.OutcomeRateLimited, "the rate limit of the upstream is used up", min(max(wholeSeconds(wait), 1), 3600))
}

// ReturnRateLimitSlot returns the slot of an attempt that is not sent.
func (ad *Admitter) ReturnRateLimitSlot() {
	if q := ad.rateLimitSlot; q != nil {
		ad.rateLimitSlot = nil
		q.GiveBack(ad.r.Process.Clock.Elapsed(), ad.r.Tokens.Returned())
	}
}
