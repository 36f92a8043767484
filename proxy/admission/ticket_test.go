package admission

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// house is an upstream with all that an attempt may need, in a process of its own.
type house struct {
	clock    *clock.Clock
	draining atomic.Bool
	budget   *budget.Budget
	terms    Terms
}

// newHouse returns one with a concurrency limit, a budget of one token and a rate limit, each of one.
func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{clock: clock.New(), budget: budget.New(budget.Config{Burst: 1})}
	target := upstream.Target{Host: "127.0.0.1:1"}
	q := New(Options{
		Guard: breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1},
		Pool:  upstream.NewGroup(target, upstream.Options{Start: h.clock.Epoch()}), Max: 10, Clock: h.clock, Draining: &h.draining,
		Failures: NewDialFailures(zap.NewNop(), "a"),
	})
	t.Cleanup(q.Close)
	limit := RateLimit{Rate: ratelimit.Rate{Count: 1, Per: time.Hour}}
	h.terms = Terms{
		Queue: q, Tokens: NewBudgetQueue(h.budget, 10, h.clock), Queues: true, QueueTimeout: time.Minute,
		RateLimits: NewRateLimits("a", "a", limit, 10, h.clock.Elapsed, nil),
	}
	return h
}

// asker is a request that never waits.
type asker struct {
	h     *house
	awake WaitEnd // how its waits end
	waits int
}

func (a *asker) UrlKey() uint32                        { return 7 }
func (a *asker) ClientKey() uint32                     { return 9 }
func (a *asker) Tick() clock.Instant                   { return a.h.clock.Now() }
func (a *asker) IsUnfinished() bool                    { return true }
func (a *asker) DrainEnds(*Waiter) bool                { return a.h.draining.Load() }
func (a *asker) MaxWait(clock.Instant) time.Duration   { return time.Minute }
func (a *asker) PauseLeft(clock.Instant) time.Duration { return 0 }
func (a *asker) RateLimitKey(s *RateLimits) uint64     { return s.KeyOf(new(http1.Request), nil) }
func (a *asker) NextUse() *Use                         { return nil }
func (a *asker) Queued(clock.Instant)                  {}
func (a *asker) WakeQueued()                           {}
func (a *asker) AwaitPause(t clock.Instant) WaitEnd    { return a.Await(t, nil) }
func (a *asker) Await(_ clock.Instant, w *Waiter) WaitEnd {
	a.waits++
	return a.awake
}

// admitter returns the admitter of a request whose waits end at once, as awake says.
func (h *house) admitter(awake WaitEnd) *Admitter {
	a := &asker{h: h, awake: awake}
	ad := new(Admitter)
	ad.Init(a, a)
	ad.Begin()
	return ad
}

// inFlight returns how many attempts have a permit.
func (h *house) inFlight() int { return h.terms.Queue.Guard.State().InFlight }

func (h *house) tokens() int { return int(h.budget.Tokens(h.clock.Elapsed())) }

// take gets the ticket of a retry, which has all there is.
func (h *house) take(t *testing.T) *Ticket {
	t.Helper()
	ticket := new(Ticket)
	if !h.budget.TryRetry(h.clock.Elapsed()) {
		t.Fatal("no token")
	}
	ticket.Reserve(&h.terms)
	if why := h.admitter(WaitedOut).Admit(ticket, h.clock.Now(), &h.terms, Ask{Began: h.clock.Now()}); why != nil {
		t.Fatalf("%+v", why)
	}
	if h.inFlight() != 1 || h.tokens() != 0 || !ticket.IsOpen() {
		t.Fatalf("%d in flight, %d tokens, open %v", h.inFlight(), h.tokens(), ticket.IsOpen())
	}
	return ticket
}

// What a ticket holds comes back as far as nothing was sent, however it is settled.
func TestWhatASettledTicketGivesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		settle   func(h *house, ticket *Ticket)
		inFlight int
		tokens   int
		slot     bool // is free again
	}{
		"with a result": {func(h *house, ticket *Ticket) {
			ticket.Release(h.clock.Now(), &policy.Result{Status: 200}, attempt.Progress{}, false)
		}, 0, 0, false},
		"not sent":         {func(h *house, ticket *Ticket) { ticket.Return(h.clock.Now()) }, 0, 1, true},
		"nothing was sent": {func(h *house, ticket *Ticket) { ticket.Abandon(h.clock.Now(), breaker.Abandoned, attempt.Progress{}) }, 0, 0, false},
		"its response came": {func(h *house, ticket *Ticket) {
			ticket.Abandon(h.clock.Now(), breaker.TimedOut, attempt.Progress{SentSome: true, Begun: true})
		}, 0, 0, false},
		"its token only": {func(h *house, ticket *Ticket) {
			ticket.ReturnToken()
			ticket.ReturnToken() // once
			ticket.Release(h.clock.Now(), &policy.Result{Cause: policy.CauseDial}, attempt.Progress{}, false)
		}, 0, 1, false},
	} {
		h := newHouse(t)
		ticket := h.take(t)
		tc.settle(h, ticket)
		if ticket.IsOpen() || h.inFlight() != tc.inFlight || h.tokens() != tc.tokens {
			t.Errorf("%s: open %v, %d in flight, %d tokens", name, ticket.IsOpen(), h.inFlight(), h.tokens())
		}
		h.budget.GiveBack() // for what comes
		var hedge Ticket
		if free := h.admitter(WaitedOut).AdmitHedge(&hedge, h.clock.Now(), &h.terms, nil); free != tc.slot {
			t.Errorf("%s: the slot of the rate limit is free: %v", name, free)
		} else if free {
			hedge.Return(h.clock.Now())
		}
	}
}

// A ticket that is refused at one stage gives back what it got at those before.
func TestARefusedTicketHoldsNothing(t *testing.T) {
	h := newHouse(t)
	permit, _ := h.terms.Queue.AcquireNow(h.clock.Elapsed()) // the only one
	defer h.terms.Queue.Guard.Release(permit, h.clock.Elapsed(), breaker.AttemptEnd{Kind: breaker.Unsent})
	for name, tc := range map[string]struct {
		awake  WaitEnd
		reason string
		left   bool
	}{
		"its time is over": {WaitedOut, policy.OutcomeOverloaded.String(), false},
		"its client left":  {ClientLeft, "", true},
		"a drain began":    {DrainBegan, policy.ReasonDraining.String(), false},
	} {
		var ticket Ticket
		if !h.budget.TryRetry(h.clock.Elapsed()) {
			t.Fatalf("%s: no token", name)
		}
		ticket.Reserve(&h.terms)
		why := h.admitter(tc.awake).Admit(&ticket, h.clock.Now(), &h.terms, Ask{Began: h.clock.Now()})
		if why == nil || why.Reason != tc.reason || why.ClientLeft != tc.left {
			t.Fatalf("%s: %+v", name, why)
		}
		if ticket.IsOpen() || h.tokens() != 1 || h.inFlight() != 1 || !h.terms.RateLimits.Common.TakeNow(h.clock.Elapsed(), nil) {
			t.Errorf("%s: open %v, %d tokens, %d in flight, or its slot is not free", name, ticket.IsOpen(), h.tokens(), h.inFlight())
		}
		h.terms.RateLimits.Common.GiveBack(h.clock.Elapsed(), nil)
	}
}

// The permit is free during a wait for a descriptor, and the slot and the token are not.
func TestAWaitForADescriptorHoldsNoPermit(t *testing.T) {
	h := newHouse(t)
	ticket := h.take(t)
	a := &asker{h: h}
	var ad Admitter
	ad.Init(a, a)
	now := h.clock.Now()
	if why := ad.AwaitDescriptor(ticket, Ask{}, now, time.Millisecond, now.Add(time.Minute)); why != nil || a.waits != 1 || h.inFlight() != 1 || h.tokens() != 0 {
		t.Errorf("%+v, %d waits, %d in flight, %d tokens", why, a.waits, h.inFlight(), h.tokens())
	}
	why := ad.AwaitDescriptor(ticket, Ask{}, now, time.Millisecond, now)
	if why == nil || !why.CloseClient || ticket.IsOpen() || h.inFlight() != 0 || h.tokens() != 1 {
		t.Errorf("%+v, open %v, %d in flight, %d tokens", why, ticket.IsOpen(), h.inFlight(), h.tokens())
	}
}

// A hedge that lacks one thing takes none of the others.
func TestAHedgeGetsAllOrNothing(t *testing.T) {
	h := newHouse(t)
	hedge := func() (Ticket, bool) {
		var ticket Ticket
		ok := h.admitter(WaitedOut).AdmitHedge(&ticket, h.clock.Now(), &h.terms, nil)
		return ticket, ok
	}
	one, ok := hedge()
	if !ok || h.inFlight() != 1 || h.tokens() != 0 {
		t.Fatalf("%v, %d in flight, %d tokens", ok, h.inFlight(), h.tokens())
	}
	one.Return(h.clock.Now())
	h.terms.RateLimits.Common.TakeNow(h.clock.Elapsed(), nil)
	if _, ok := hedge(); ok || h.inFlight() != 0 || h.tokens() != 1 {
		t.Errorf("without a slot: %v, %d in flight, %d tokens", ok, h.inFlight(), h.tokens())
	}
	h.terms.RateLimits.Common.GiveBack(h.clock.Elapsed(), nil)
	permit, _ := h.terms.Queue.AcquireNow(h.clock.Elapsed())
	if _, ok := hedge(); ok || h.tokens() != 1 {
		t.Errorf("without a permit: %v, %d tokens", ok, h.tokens())
	}
	h.terms.Queue.Guard.Release(permit, h.clock.Elapsed(), breaker.AttemptEnd{Kind: breaker.Unsent})
	if two, ok := hedge(); !ok {
		t.Error("its slot was not given back")
	} else {
		two.Return(h.clock.Now())
	}
}

// What a failed attempt shows about the upstream as a whole.
func TestWhatAnAttemptShowsOfItsUpstream(t *testing.T) {
	refused := &upstream.DialError{Kind: upstream.KindRefused, Addr: "a", Err: errors.New("refused")}
	timeout := &upstream.DialError{Kind: upstream.KindTimeout, Addr: "a", Err: errors.New("timeout")}
	full := &upstream.DialError{Kind: upstream.KindNoDescriptors, Addr: "a", Err: errors.New("none left")}
	narrow := &upstream.DialError{Kind: upstream.KindNoStream, Addr: "a", Err: errors.New("none free")}
	for name, tc := range map[string]struct {
		res    policy.Result
		dial   *upstream.DialError
		kind   breaker.EndKind
		status int
	}{
		"a response":            {policy.Result{Cause: policy.CauseStatus, Status: 503}, nil, breaker.Responded, 503},
		"a failed call":         {policy.Result{Cause: policy.CauseStatus, Status: 200, GRPC: policy.GRPCUnavailable}, nil, breaker.Responded, 503},
		"a stale connection":    {policy.Result{Cause: policy.CauseIdleClose}, nil, breaker.Unsent, 0},
		"a refused stream":      {policy.Result{Cause: policy.CauseRefusedStream}, nil, breaker.Unsent, 0},
		"refused":               {policy.Result{Cause: policy.CauseDial}, refused, breaker.Refused, 0},
		"no connection":         {policy.Result{Cause: policy.CauseDial}, timeout, breaker.DialFailed, 0},
		"no descriptor of ours": {policy.Result{Cause: policy.CauseDial}, full, breaker.Unsent, 0},
		"no free stream":        {policy.Result{Cause: policy.CauseDial}, narrow, breaker.Unsent, 0},
		"nothing was taken":     {policy.Result{Cause: policy.CauseDial}, nil, breaker.Reset, 0},
		"reset":                 {policy.Result{Cause: policy.CauseReset}, nil, breaker.Reset, 0},
		"silence":               {policy.Result{Cause: policy.CauseAttemptTimeout}, nil, breaker.TimedOut, 0},
		"not HTTP":              {policy.Result{Cause: policy.CauseMalformed}, nil, breaker.Responded, 502},
	} {
		ticket := Ticket{of: &Admitter{by: &asker{}}}
		e := ticket.failure(&tc.res, attempt.Progress{DialError: tc.dial}, true)
		if e.Kind != tc.kind || e.Status != tc.status || e.Key != 7 || e.CutShort != (tc.dial != nil) || (e.Client == 9) != (tc.res.Cause == policy.CauseStatus) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
