package request

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// StartPause begins the rate-limit pause that a 429 asks for.
func (cr *Request) StartPause(a *policy.Attempt) {
	if a.Status != 429 || !a.HasRetryAfter || a.RetryAfter > cr.Route.RateLimitPause.Max {
		return
	}
	key, ok := cr.Route.PauseKey(cr.HTTP)
	if !ok {
		return
	}
	s := cr.Process
	now := s.Clock.Elapsed()
	if s.RateLimitPauses.Begin(key, now+a.RetryAfter, now) && cr.Settings.RateLimitPauseBegan != nil {
		cr.Settings.RateLimitPauseBegan(key, a.RetryAfter)
	}
}

// PauseTooLong reports whether the failed response asks for a wait so long that the client has to
// decide about it.
func (cr *Request) PauseTooLong(a *policy.Attempt) bool {
	return a.Cause == policy.CauseStatus && a.HasRetryAfter && cr.Route.RateLimitPause.Max > 0 && a.RetryAfter > cr.Route.RateLimitPause.Max
}

// PauseLeft returns how much longer the request has to pause; 0 means not at all.
func (cr *Request) PauseLeft(now clock.Instant) time.Duration {
	s, t := cr.Process, cr.Process.Clock.Since(now)
	if cr.Route.RateLimitPause.Kind == settings.RateLimitPauseNone || !s.RateLimitPauses.AnyActive(t) {
		return 0
	}
	key, ok := cr.Route.PauseKey(cr.HTTP)
	if !ok {
		return 0
	}
	left := s.RateLimitPauses.Remaining(key, t)
	if left > cr.Route.RateLimitPause.Max {
		return 0 // learnt from a process that allows more
	}
	return left
}
