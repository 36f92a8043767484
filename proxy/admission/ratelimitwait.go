package admission

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// waitOutPause waits for the end of the request's rate-limit pause, if the request has the time.
// It returns the time after the wait. No permit is held during the wait.
func (ad *Admitter) waitOutPause(now clock.Instant, a *Ask) (clock.Instant, *Refusal) {
	for {
		left := ad.by.PauseLeft(now)
		if left <= 0 {
			return now, nil
		}
		room := ad.by.MaxWait(now)
		wait, fits := ratelimit.PauseWait(left, room, backoff.Shared())
		switch {
		case room <= 0:
			return now, &deadlinePassed
		case !fits:
			return now, a.refuse(429, policy.ReasonRateLimitPause, policy.OutcomeRateLimitPause, "the upstream asked for a pause (429), which has not ended yet", WholeSeconds(left))
		}
		end := ad.by.AwaitPause(now.Add(wait))
		ad.by.Queued(now)
		switch end {
		case ClientLeft:
			return now, &clientLeft
		case DrainBegan:
			return now, drained(left)
		}
		now = ad.by.Tick() // other requests may have met a 429 during the wait
	}
}

// WholeSeconds rounds d up to whole seconds, for a Retry-After.
func WholeSeconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// awaitRateLimit waits for a slot of the upstream's rate limit. It returns the time after the
// wait.
func (ad *Admitter) awaitRateLimit(t *Ticket, now clock.Instant, a *Ask) (clock.Instant, *Refusal) {
	s := t.terms.RateLimits
	room := min(max(t.terms.RateLimitWait, s.MinWait()), ad.by.MaxWait(now))
	var use *Use
	if s.CountsTokens() {
		use = ad.by.NextUse()
	}
	w := &ad.waiter
	w.Use = use
	q, e := s.Enter(ad.by.RateLimitKey(s), w, now.Sub(clock.Start), room)
	switch e.Decision {
	case Admit:
		t.takeSlot(q, use)
		return now, nil
	case Dropped:
		return now, a.overRateLimit(e.Wait)
	}
	expected := now.Sub(clock.Start) + e.Wait
	end := ad.await(now.Add(room), expected)
	ad.by.Queued(now)
	later := ad.by.Tick()
	if q.Quit(w, e.Ticket, later.Sub(clock.Start)) {
		switch end {
		case ClientLeft:
			return later, &clientLeft
		case DrainBegan:
			return later, drained(max(expected-later.Sub(clock.Start), time.Second))
		}
		return later, a.overRateLimit(e.Wait)
	}
	t.takeSlot(q, use)
	if end == ClientLeft { // it was let in at the same moment
		return later, &clientLeft
	}
	return later, nil
}

// overRateLimit refuses the request because of the rate limit.
func (a *Ask) overRateLimit(wait time.Duration) *Refusal {
	wait = min(max(WholeSeconds(wait), time.Second), time.Hour)
	return a.refuse(429, policy.ReasonRateLimited, policy.OutcomeRateLimited, "the rate limit of the upstream is used up", wait)
}
