package admission

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// Terms are those on which the attempts of a route are admitted at an upstream.
type Terms struct {
	Queue             *Queue
	Tokens            *BudgetQueue  // of retries that wait for a token of the retry budget; nil: there is no budget
	RateLimits        *RateLimits   // nil: none
	RateLimitWait     time.Duration // the longest wait for a slot of them
	Pauses            bool          // requests share rate-limit pauses
	Queues            bool          // requests wait for the circuit breaker, and do not fail fast
	QueueTimeout      time.Duration // their longest wait for it
	LimitQueueTimeout time.Duration // the longest wait for a permit under the concurrency limit; 0: a second
}

// RetriesQueue reports whether a retry waits for a permit in the queue instead of costing retry budget. It
// does if the upstream's breaker is not closed.
func (t *Terms) RetriesQueue() bool {
	return t.Queues && t.Queue.Guard.State().Breaker != breaker.Closed
}

// Ask is what the next attempt of a request is.
type Ask struct {
	Began      clock.Instant // when the request began
	Deadline   clock.Instant // when it must have its response; zero: there is no such time
	Unfinished bool          // its client has not sent all of it, as far as was known before any wait
	First      bool          // no attempt was made before
}

// Requester is a request that asks for tickets.
type Requester interface {
	// UrlKey returns a hash of the request's URL, see breaker.AttemptEnd.Key.
	UrlKey() uint32
	// ClientKey returns a hash of its client, see breaker.AttemptEnd.Client.
	ClientKey() uint32
	// Tick reads the clock for the request.
	Tick() clock.Instant
	// Await waits until t, or until w has its decision if that is not nil.
	Await(t clock.Instant, w *Waiter) WaitEnd
	// Queued records a wait that began at began and ends now.
	Queued(began clock.Instant)
	// AwaitPause waits until t for the end of a rate-limit pause.
	AwaitPause(t clock.Instant) WaitEnd
	// IsUnfinished reports whether its client has not sent all of it.
	IsUnfinished() bool
	// DrainEnds reports whether a drain ends the wait of w; nil waits for something other than a queue.
	DrainEnds(w *Waiter) bool
	// MaxWait returns the longest time that the request may wait from now on.
	MaxWait(now clock.Instant) time.Duration
	// PauseLeft returns how much longer the request has to pause; 0 means not at all.
	PauseLeft(now clock.Instant) time.Duration
	// RateLimitKey returns the key by which the request shares a rate limit.
	RateLimitKey(s *RateLimits) uint64
	// NextUse returns what the next attempt takes of a rate limit that counts tokens.
	NextUse() *Use
}

// WaitEnd is what ended a wait of a request.
type WaitEnd uint8

// What ends a wait, a closed set.
const (
	WaitedOut WaitEnd = iota
	ClientLeft
	DrainBegan
	Notified // the waiter has its decision
	NoToken  // the retry budget had no token in time
)

// Admitter gets tickets for the attempts of a request. If it must wait, it waits in the request's own
// goroutine. It is not safe for concurrent use.
type Admitter struct {
	by     Requester
	waiter Waiter // the request while it is queued

	queueUntil clock.Instant // end of all waiting at a breaker; zero: no wait began
}

// freeRetry is what is known of the retry that uses up no retry, see Admitter.RetryIsFree.
type freeRetry struct {
	now  bool // the next one is
	lost bool // one was, of an attempt that was lost or unanswered
}

// Init prepares the admitter of the requests of a connection. wakes ends their waits.
func (ad *Admitter) Init(by Requester, wakes Waker) { ad.by, ad.waiter.Owner = by, wakes }

// Begin prepares for another request.
func (ad *Admitter) Begin() { ad.queueUntil, ad.waiter.free = 0, freeRetry{} }

// RetryIsFree reports whether the retry of what was admitted last, an attempt and its hedges, uses up no
// retry: one of them failed while its upstream was known to be down.
func (ad *Admitter) RetryIsFree() bool { return ad.waiter.free.now }

// Admit fills t for the attempt of a: it waits for the end of a rate-limit pause, for a slot of the
// rate limit and for a permit, and none of this costs a retry or budget. If it returns nil, the attempt
// must be sent now. Otherwise t is settled.
func (ad *Admitter) Admit(t *Ticket, now clock.Instant, terms *Terms, a Ask) *Refusal {
	if !t.open {
		t.begin(terms)
	}
	t.of, ad.waiter.free.now = ad, false
	why := ad.admit(t, now, &a)
	if why != nil {
		t.Return(t.now())
	}
	return why
}

func (ad *Admitter) admit(t *Ticket, now clock.Instant, a *Ask) (why *Refusal) {
	if t.terms.Pauses {
		if now, why = ad.waitOutPause(now, a); why != nil {
			return why
		}
	}
	if t.terms.RateLimits != nil {
		if now, why = ad.awaitRateLimit(t, now, a); why != nil {
			return why
		}
	}
	return ad.acquire(t, now, a)
}

// AdmitHedge fills t for a hedge of the request of a. It never waits. It reports false if something is
// missing, the circuit breaker is not closed, or a rate-limit pause is running. use is for what the hedge
// takes of a rate limit.
func (ad *Admitter) AdmitHedge(t *Ticket, now clock.Instant, terms *Terms, use *Use) bool {
	at := now.Sub(clock.Start)
	if !terms.Queue.Guard.BreakerClosed() || ad.by.PauseLeft(now) > 0 || terms.Tokens != nil && !terms.Tokens.budget.TryRetry(at) {
		return false
	}
	t.begin(terms)
	t.of, t.hasToken = ad, terms.Tokens != nil
	if s := terms.RateLimits; s != nil {
		q := s.QueueOf(ad.by.RateLimitKey(s), at)
		if !q.TakeNow(at, use) {
			t.Return(now)
			return false
		}
		t.takeSlot(q, use)
	}
	var ok bool
	if t.permit, ok = t.queue().AcquireNow(at); !ok {
		t.Return(now)
	}
	return ok
}

// await waits until t for what the waiter is queued for. It is likely to come at expected, a time since the
// server's start; 0: at any time.
func (ad *Admitter) await(t clock.Instant, expected time.Duration) WaitEnd {
	ad.waiter.ExpectedAt = expected
	return ad.by.Await(t, &ad.waiter)
}

// acquire takes the permit of t. If the route allows it, it waits for one.
func (ad *Admitter) acquire(t *Ticket, now clock.Instant, a *Ask) *Refusal {
	if d := a.Deadline; !d.IsZero() && !now.Before(d) {
		return &deadlinePassed
	}
	unfinished := a.Unfinished && ad.by.IsUnfinished()
	var ok bool
	if t.permit, ok = t.queue().Guard.AcquireFast(now.Sub(clock.Start)); !ok {
		why := ad.acquireSlow(t, now, a, unfinished)
		if t.permit = ad.waiter.Permit; why != nil {
			return why
		}
	}
	if unfinished {
		t.sending()
	}
	return nil
}

// now reads the clock.
func (t *Ticket) now() clock.Instant { return clock.Start.Add(t.queue().elapsed()) }

// AwaitDescriptor waits before the next try to get a descriptor for the attempt of a with the ticket t, if
// now is before until. The permit is given back during the wait, so that it does not count as silence of
// the upstream. If the result is not nil, t is settled.
func (ad *Admitter) AwaitDescriptor(t *Ticket, a Ask, now clock.Instant, wait time.Duration, until clock.Instant) *Refusal {
	why := ad.awaitDescriptor(t, &a, now, wait, until)
	if why != nil {
		t.Return(t.now())
	}
	return why
}

func (ad *Admitter) awaitDescriptor(t *Ticket, a *Ask, now clock.Instant, wait time.Duration, until clock.Instant) *Refusal {
	t.returnPermit(t.now())
	if !now.Before(until) {
		return &noDescriptor
	}
	ad.waiter.Decision.Store(Wait)
	switch ad.await(clock.Earliest(until, now.Add(wait)), 0) {
	case ClientLeft:
		return &clientLeft
	case DrainBegan:
		return &drainEnded
	}
	why := ad.acquire(t, ad.by.Tick(), a)
	if why == &deadlinePassed {
		return &noDescriptor // while none was free
	}
	return why
}

// Refusal is why an attempt is not sent, and the response to its request.
type Refusal struct {
	Status      int // of our own response, if there was no real one
	Outcome     policy.Outcome
	Reason      string
	Text        string
	RetryAfter  time.Duration // when the client may retry; 0: unknown
	ClientLeft  bool          // there is nobody to respond to
	CloseClient bool          // the end of the client's connection frees what was missing
}

// notTaking is the error text if the upstream's queue admits nothing.
const notTaking = "the upstream does not accept requests"

// Refusals that depend on nothing else.
var (
	clientLeft     = Refusal{ClientLeft: true}
	drainEnded     = GaveUp(503, policy.ReasonDraining, notTaking)
	deadlinePassed = GaveUp(504, policy.ReasonDeadline, "the time limit of the request passed before it was sent")
	noDescriptor   = func() Refusal {
		r := GaveUp(503, policy.ReasonNoDescriptors, "no file descriptor is left for a connection to the upstream")
		r.CloseClient = true
		return r
	}()
)

// LeftClient returns the refusal of a request whose client left.
func LeftClient() *Refusal { return &clientLeft }

// GaveUp returns the Refusal for a reason that has an outcome of its own.
func GaveUp(status int, why policy.Reason, text string) Refusal {
	return Refusal{Status: status, Outcome: policy.GaveUp(why), Reason: why.String(), Text: text}
}

// UsedUp returns the Refusal for an account that is used up for that long.
func UsedUp(left time.Duration) *Refusal {
	r := GaveUp(429, policy.ReasonQuotaExhausted, "the quota of the account at the upstream is used up")
	r.RetryAfter = WholeSeconds(left)
	return &r
}

// drained returns the refusal of a request whose wait of at least left a drain ended.
func drained(left time.Duration) *Refusal {
	r := drainEnded
	r.RetryAfter = WholeSeconds(left)
	return &r
}

// refuse refuses the attempt. The outcome of the request is first if this is its first attempt, and
// otherwise the one of a request that gave up because of why.
func (a *Ask) refuse(status int, why policy.Reason, first policy.Outcome, text string, retryAfter time.Duration) *Refusal {
	r := GaveUp(status, why, text)
	if a.First {
		r.Outcome = first
	}
	r.RetryAfter = retryAfter
	return &r
}
