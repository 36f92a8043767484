// Package permit gets the next attempt of a request admitted. It consults the rate-limit pause,
// the rate limit and the queue of the upstream in turn, and waits on the client's own connection if
// one of them requires it. It returns the permit of an attempt with the
// evidence that the attempt gives about the upstream. Package admission has the queues; this
// package takes one request through them.
package permit

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Result is the result of admission for an attempt.
type Result uint8

// Results of admission.
const (
	Admitted Result = iota
	Rejected
	ClientLeft
	DrainEnded     // a drain ended the wait
	DeadlinePassed // the deadline of the request has passed
	NoDescriptor   // no file descriptor was free for a connection
)

// Admitter gets the attempts of a request admitted, and returns their permits. It records what the
// request holds at each stage of admission. It belongs to the request's connection and is not safe
// for concurrent use.
type Admitter struct {
	r      *request.Request
	report *report.Report
	waiter admission.Waiter // the request while it is queued

	state
}

// state is the progress of a request through admission. The zero value is a request that has just
// begun.
type state struct {
	rateLimitSlot  *admission.RateLimitQueue // has granted a slot for an attempt that is not sent yet; nil: none
	queueUntil     clock.Instant             // end of all waiting at a breaker; zero: no wait began
	RetryAfter     int32                     // when the client may retry, in seconds; 0: unknown
	NoAttempt      Result                    // what ended the wait of an attempt for a descriptor; Admitted: it was made
	SeenDown       bool                      // the last attempt failed while its upstream was known to be down, and uses up no retry
	lostFree       bool                      // such an attempt was lost or unanswered before
	HasBudgetToken bool                      // a budget token is taken for a retry that is not sent yet
	rejection      *Rejection                // if the result was Rejected
}

// Init prepares the admission of a connection for its first use.
func (ad *Admitter) Init(r *request.Request, p *report.Report) {
	ad.r, ad.report = r, p
	ad.waiter.Owner = r.Conn
}

// Connected keeps the slot of the rate limit, because the attempt has its connection.
func (ad *Admitter) Connected() { ad.rateLimitSlot = nil }

// Begin prepares for another request.
func (ad *Admitter) Begin() { ad.state = state{} }

// Admit takes the attempt through each stage of admission in turn. If it returns Admitted, the
// attempt has a permit and must be sent now.
func (ad *Admitter) Admit(a *attempt.Attempt, now clock.Instant) Result {
	if len(ad.r.Route.Fallbacks) > 0 {
		if left := ad.r.AccountLeft(ad.r.Route, now); left > 0 {
			return ad.reject(429, policy.ReasonQuotaExhausted, policy.OutcomeGaveUpQuotaExhausted, "the account is used up", wholeSeconds(left))
		}
	}
	if ad.r.Route.RateLimitPause.Kind != settings.RateLimitPauseNone {
		in, later := ad.waitOutPause(now)
		if in != Admitted {
			return in
		}
		now = later
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

// NoteSent reports to the Guard that the attempt's request was sent whole, if it was.
func (ad *Admitter) NoteSent(a *attempt.Attempt) {
	if a.Permit.Sending() && a.IsSent() {
		q := ad.r.Dest.UpstreamState.Admission
		p, signal := q.Guard.Sent(a.Permit, ad.r.Process.Clock.Since(a.SentAt()))
		a.Permit = p
		q.HandleSignal(signal)
	}
}

// returnUnused returns a permit that was not used.
func (ad *Admitter) returnUnused(a *attempt.Attempt) {
	if permit := a.TakePermit(); permit.Taken() {
		q := ad.r.Dest.UpstreamState.Admission
		q.HandleSignal(q.Guard.Release(permit, ad.r.Process.Clock.Elapsed(), breaker.AttemptEnd{Kind: breaker.Unsent}))
	}
}

// Release returns the permit of the attempt and reports its result to the Guard.
func (ad *Admitter) Release(a *attempt.Attempt, res *policy.Result) {
	ad.NoteSent(a)
	permit := a.TakePermit()
	if !permit.Taken() {
		return
	}
	q, t := ad.r.Dest.UpstreamState.Admission, ad.r.Process.Clock.Since(ad.r.Time.Clock)
	e := breaker.AttemptEnd{Kind: breaker.Responded, Status: res.JudgedStatus()}
	switch {
	case res.Cause != policy.CauseStatus || e.Status >= 500:
		e = ad.r.AttemptEnd(a, res)
	case q.Guard.WantsKey(t):
		e.Key = ad.r.UrlKey()
	}
	signal := q.Guard.Release(permit, t, e)
	ad.SeenDown = ad.isFree(signal, res.Cause == policy.CauseStatus || res.Cause.Sure())
	q.HandleSignal(signal)
}

// isFree reports whether an attempt failed while its upstream was known to be down, and its retry
// may wait for the breaker: it uses up no retry. If it is not certain what the upstream did with the
// attempt, that holds once, so that a request that kills its upstream does not come again and again.
func (ad *Admitter) isFree(s breaker.Signal, certain bool) bool {
	if s&breaker.SignalDown == 0 || ad.r.Dest.Breaker != settings.BreakerQueue {
		return false
	}
	free := certain || !ad.lostFree
	ad.lostFree = ad.lostFree || !certain
	return free
}

// AwaitsLateResponse reports whether the connection of the attempt with the permit is still read
// after its client stopped waiting. A request that was not sent whole gets no response, and one whose
// response has begun shows already what a late response would.
func (ad *Admitter) AwaitsLateResponse(a *attempt.Attempt, permit breaker.Permit) bool {
	return permit.Probe() && a.SentSome() && !a.Begun() && a.IsSent()
}

// Abandon keeps the permit of an attempt that was sent and that the client no longer waits for,
// because the upstream still works on it. The connection of a probe is still read; no pump may use
// it. If the response has begun, the permit is returned.
func (ad *Admitter) Abandon(a *attempt.Attempt, kind breaker.EndKind) {
	ad.NoteSent(a)
	permit := a.TakePermit()
	if !permit.Taken() {
		return
	}
	q, t := ad.r.Dest.UpstreamState.Admission, ad.r.Process.Clock.Elapsed()
	if !a.SentSome() {
		q.HandleSignal(q.Guard.Release(permit, t, breaker.AttemptEnd{Kind: breaker.Unsent}))
		return
	}
	if a.Begun() {
		q.HandleSignal(q.Guard.Release(permit, t, ad.r.EndOfBegun(kind)))
		return
	}
	listens := ad.AwaitsLateResponse(a, permit)
	e := breaker.AttemptEnd{Kind: kind, Key: ad.r.UrlKey(), Closed: !listens}
	late, signal := q.Guard.Abandon(permit, t, e)
	if listens {
		q.AwaitLateResponse(a.Take(), late)
	}
	ad.SeenDown = ad.isFree(signal, false)
	q.HandleSignal(signal)
}

// Acquire takes a permit for the next attempt. If the route allows it, it waits for one. The wait
// costs no retry and no budget.
func (ad *Admitter) Acquire(a *attempt.Attempt, now clock.Instant) Result {
	if !ad.r.Time.Deadline.IsZero() && !now.Before(ad.r.Time.Deadline) {
		return DeadlinePassed
	}
	q := ad.r.Dest.UpstreamState.Admission
	t := ad.r.Process.Clock.Since(now)
	ad.SeenDown = false
	ad.waiter.Request.Unfinished = !ad.r.Body.IsComplete()
	in := Admitted
	if permit, ok := q.Guard.AcquireFast(t); ok {
		a.Permit = permit
	} else {
		in = ad.acquireSlow(a, q, t)
	}
	if in == Admitted && ad.waiter.Request.Unfinished {
		a.Permit = q.Guard.Sending(a.Permit)
	}
	return in
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
	case NoDescriptor:
		return gaveUp(503, policy.ReasonNoDescriptors, "no file descriptor is left for a connection to the upstream")
	}
	return *ad.rejection
}

// reject rejects the attempt. The outcome of the request is first if this is its first attempt, and
// otherwise the one of a request that gave up because of why.
func (ad *Admitter) reject(status int, why policy.Reason, first policy.Outcome, text string, retryAfter int32) Result {
	t := gaveUp(status, why, text)
	if ad.r.Attempts == 0 {
		t.Outcome = first
	}
	ad.rejection, ad.RetryAfter = &t, retryAfter
	return Rejected
}
