package exchange

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// waitOutPause waits for the end of the request's rate-limit pause, if the request has the time. It
// returns the time at its end. No permit is held meanwhile.
func (a *admitter) waitOutPause(now clock.Instant) (admissionResult, clock.Instant) {
	for {
		left := a.r.PauseLeft(now)
		if left <= 0 {
			return admitted, now
		}
		room := a.r.MaxWait(now)
		wait, fits := ratelimit.PauseWait(left, room, backoff.Shared())
		switch {
		case room <= 0:
			return deadlinePassed, now
		case !fits:
			a.rejectedBy, a.retryAfter = rejectedByPause, wholeSeconds(left)
			return notAdmitted, now
		}
		end := a.await(now.Add(wait), nil)
		a.report.Queued(now)
		switch end {
		case clientLeft:
			return clientLeftQueue, now
		case drainBegan:
			a.retryAfter = wholeSeconds(left)
			return drainEndedWait, now
		}
		now = a.r.Clock // others may have met a 429 meanwhile
	}
}

// wholeSeconds rounds up to whole seconds, for a Retry-After.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// awaitRateLimit waits for a slot of the upstream's rate limit. It returns the time at its end.
func (a *admitter) awaitRateLimit(s *admission.RateLimits, now clock.Instant) (admissionResult, clock.Instant) {
	room := min(max(a.r.Route.RateLimit.Wait, s.MinWait()), a.r.MaxWait(now))
	q, e := s.Enter(s.KeyOf(a.r.HTTP), &a.waiter, a.r.Process.Clock.Since(now), room)
	switch e.Decision {
	case admission.Admit:
		a.rateLimitSlot = q
		return admitted, now
	case admission.Dropped:
		return a.overRateLimit(e.Wait), now
	}
	a.waiter.ExpectedAt = a.r.Process.Clock.Since(now) + e.Wait
	end := a.await(now.Add(room), &a.waiter)
	later := a.r.Tick()
	a.report.Observer.Queued(later.Sub(now))
	if q.Quit(e.Ticket, a.r.Process.Clock.Since(later)) {
		switch end {
		case clientLeft:
			return clientLeftQueue, later
		case drainBegan:
			a.retryAfter = wholeSeconds(max(a.waiter.ExpectedAt-a.r.Process.Clock.Since(later), time.Second))
			return drainEndedWait, later
		}
		return a.overRateLimit(e.Wait), later
	}
	a.rateLimitSlot = q
	if end == clientLeft { // it was let in at the same moment
		return clientLeftQueue, later
	}
	return admitted, later
}

// overRateLimit rejects the request because of the rate limit.
func (a *admitter) overRateLimit(wait time.Duration) admissionResult {
	a.rejectedBy, a.retryAfter = rejectedByRateLimit, min(max(wholeSeconds(wait), 1), 3600)
	return notAdmitted
}

// returnRateLimitSlot returns the slot of an attempt that is not sent after all.
func (a *admitter) returnRateLimitSlot() {
	if q := a.rateLimitSlot; q != nil {
		a.rateLimitSlot = nil
		q.GiveBack(a.r.Process.Clock.Elapsed())
	}
}
