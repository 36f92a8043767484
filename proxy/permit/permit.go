// Package permit gets the next attempt of a request admitted: it asks the rate-limit pause,
// client-side throttling, the rate limit and the queue of the upstream in turn, and waits on the
// client's own connection where one of them says so. It returns the permit of an attempt with what
// the attempt says about the upstream. Package admission has the queues; this package has one
// request's way through them.
package permit

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Result is what admission made of an attempt.
type Result uint8

// Results of admission.
const (
	Admitted Result = iota
	Rejected
	ClientLeft
	DrainEnded     // a drain ended the wait
	DeadlinePassed // the deadline of the request has passed
)

// rejectingStage is the stage of admission that rejected an attempt.
type rejectingStage uint8

const (
	rejectedByQueue rejectingStage = iota // see state.verdict
	rejectedByPause
	rejectedByThrottling
	rejectedByRateLimit
)

// Admitter gets the attempts of a request admitted, and returns their permits. It knows what the
// request holds at each stage of admission.
type Admitter struct {
	r      *request.Request
	report *report.Report
	waiter admission.Waiter // its place in a queue

	state
}

// state is how far a request has come in admission. The zero value is that of a request
// that has just begun.
type state struct {
	rateLimitSlot    *admission.RateLimitQueue // a slot of which is taken for an attempt that is not sent yet
	queueUntil       clock.Instant             // end of all waiting at a breaker; zero: not begun
	RetryAfter       int                       // when the client may come again, in seconds; 0: it is not known
	NoAttempt        policy.Reason             // why the attempt found no descriptor for its connection; none: it was made
	rejectedBy       rejectingStage
	verdict          breaker.Verdict // of the breaker, on the last attempt that it did not admit at once
	HasBudgetToken   bool            // a token of the budget is taken for a retry that is not sent yet
	droppedFromQueue bool            // from a full queue
}

// Init prepares the admission of a connection for its first use.
func (ad *Admitter) Init(r *request.Request, p *report.Report) {
	ad.r, ad.report = r, p
	ad.waiter.Owner = r.Conn
}

// Connected keeps the slot of the rate limit: the attempt has its connection.
func (ad *Admitter) Connected() { ad.rateLimitSlot = nil }

// Begin prepares for another request.
func (ad *Admitter) Begin() { ad.state = state{} }

// Admit asks each stage of admission in turn. Admitted means that the attempt has a
// permit and is sent now.
func (ad *Admitter) Admit(a *attempt.Attempt, now clock.Instant) Result {
	if ad.r.Route.RateLimitPause.Kind != settings.RateLimitPauseNone {
		in, later := ad.waitOutPause(now)
		if in != Admitted {
			return in
		}
		now = later
	}
	if ad.r.Attempts == 0 && ad.r.Route.UpstreamState.Throttler != nil && !ad.throttlerAllows(a, now) { // a retry was checked before its wait
		ad.rejectedBy, ad.RetryAfter = rejectedByThrottling, 1
		return Rejected
	}
	if q := ad.r.Route.RateLimits; q != nil {
		in, later := ad.awaitRateLimit(q, now)
		if in != Admitted {
			return in
		}
		now = later
	}
	return ad.Acquire(a, now)
}

// throttlerAllows reports whether client-side throttling lets the next attempt pass.
func (ad *Admitter) throttlerAllows(a *attempt.Attempt, now clock.Instant) bool {
	var pass bool
	a.Throttled, pass = ad.checkThrottler(now)
	return pass
}

// checkThrottler asks the upstream's throttler, if it has one. While the breaker is not
// closed, the breaker alone decides and nothing counts. asked means that the throttler
// expects the result of an attempt that it lets pass.
func (ad *Admitter) checkThrottler(now clock.Instant) (asked, pass bool) {
	u := ad.r.Route.UpstreamState
	if u.Throttler == nil || !u.Admission.Guard.BreakerClosed() {
		return false, true
	}
	return true, u.Throttler.Allow(ad.r.Process.Clock.Since(now), backoff.Shared().Float64())
}
