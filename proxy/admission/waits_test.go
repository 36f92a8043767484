package admission

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// town is a house in fake time. Its upstream is up, which keeps connections, or down, which refuses them.
type town struct {
	house
	t      *testing.T
	down   atomic.Bool
	dials  atomic.Int32
	lines  *observer.ObservedLogs
	asking atomic.Pointer[request] // the requests, the last one first
	wanted atomic.Int32            // how often the rate limit wants to ask
}

// inFakeTime calls test with a house without limits and with a budget of one token a second.
func inFakeTime(t *testing.T, change func(o *Options), test func(s *town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &town{house: house{clock: clock.New(), budget: budget.New(budget.Config{MinPerSecond: 1, Burst: 1})}, t: t}
		var core zapcore.Core
		core, s.lines = observer.New(zap.InfoLevel)
		target := upstream.Target{Network: "tcp", Address: "10.0.0.1:80", Dial: func(context.Context, string, string) (net.Conn, error) {
			s.dials.Add(1)
			if s.down.Load() {
				return nil, syscall.ECONNREFUSED
			}
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				_, _ = far.Read(make([]byte, 1000)) // until the other side closes
			}()
			return near, nil
		}}
		pool := upstream.NewGroup(target, upstream.Options{Start: s.clock.Epoch()})
		o := Options{Pool: pool, Max: 10, Clock: s.clock, Draining: &s.draining, Failures: NewDialFailures(zap.New(core), "a")}
		if change != nil {
			change(&o)
		}
		q := New(o)
		s.terms = Terms{Queue: q, Tokens: NewBudgetQueue(s.budget, 10, s.clock), Queues: true, QueueTimeout: 2 * time.Second}
		time.Sleep(time.Second)
		defer pool.Close()
		defer q.Close()
		test(s)
		synctest.Wait()
		for r := s.asking.Load(); r != nil; r = r.before {
			if r.ticket.IsOpen() {
				r.ticket.Return(s.clock.Now())
			}
		}
	})
}

// fail opens the breaker, since nothing listens any more.
func (s *town) fail() {
	s.down.Store(true)
	s.terms.Queue.lose(s.t)
	for range 200 {
		if s.terms.Queue.Guard.State().Breaker != breaker.Closed {
			return
		}
		time.Sleep(time.Millisecond)
	}
	s.t.Fatal("the breaker did not open")
}

// logged returns the messages that were logged.
func (s *town) logged() (all []string) {
	for _, line := range s.lines.All() {
		all = append(all, line.Message)
	}
	return all
}

// request is one that waits. Its waits end as they do for a client.
type request struct {
	asker
	Admitter
	ticket Ticket
	ask    Ask
	before *request // of the house
	woken  chan struct{}
	ends   chan WaitEnd // what happens meanwhile

	room   time.Duration // the longest wait
	pause  atomic.Int64  // a clock.Instant, its end
	use    *Use          // of the next attempt
	queued time.Duration // all its waits
}

func (s *town) request() *request {
	r := &request{asker: asker{h: &s.house}, woken: make(chan struct{}, 1), ends: make(chan WaitEnd, 1), room: time.Minute}
	r.Init(r, r)
	r.Begin()
	r.ask = Ask{Began: s.clock.Now(), First: true}
	for r.before = s.asking.Load(); !s.asking.CompareAndSwap(r.before, r); r.before = s.asking.Load() {
	}
	return r
}

// meanwhile lets something happen to the request after a time.
func (r *request) meanwhile(after time.Duration, e WaitEnd) {
	time.AfterFunc(after, func() { r.ends <- e })
}

func (r *request) WakeQueued()                         { r.woken <- struct{}{} }
func (r *request) MaxWait(clock.Instant) time.Duration { return r.room }
func (r *request) NextUse() *Use                       { return r.use }
func (r *request) IsUnfinished() bool                  { return false }
func (r *request) Queued(began clock.Instant)          { r.queued += r.h.clock.Now().Sub(began) }
func (r *request) PauseLeft(t clock.Instant) time.Duration {
	return max(clock.Instant(r.pause.Load()).Sub(t), 0)
}
func (r *request) AwaitPause(t clock.Instant) WaitEnd { return r.Await(t, nil) }
func (r *request) Await(t clock.Instant, w *Waiter) WaitEnd {
	for {
		if w != nil && w.Decision.Load() != Wait {
			return Notified
		}
		select {
		case <-r.woken:
		case e := <-r.ends:
			return e
		case <-time.After(t.Sub(r.h.clock.Now())):
			return WaitedOut
		}
	}
}

// admit asks for a ticket and returns after how long, and the refusal.
func (r *request) admit() (waited time.Duration, why *Refusal) {
	began := r.h.clock.Now()
	why = r.Admit(&r.ticket, began, &r.h.terms, r.ask)
	return r.h.clock.Now().Sub(began), why
}

// wants checks how an Admit ended: after about so long, with this reason; "" for admitted.
func (s *town) wants(name string, r *request, waited time.Duration, why *Refusal, wantWait time.Duration, reason string) {
	s.t.Helper()
	got := ""
	if why != nil {
		if got = why.Reason; why.ClientLeft {
			got = "client left"
		}
	}
	if got != reason || (waited-wantWait).Abs() > 20*time.Millisecond || r.ticket.IsOpen() != (why == nil) {
		s.t.Errorf("%s: %q after %v, want %q after %v; the ticket is open: %v", name, got, waited, reason, wantWait, r.ticket.IsOpen())
	}
	if why == nil {
		r.ticket.Return(s.clock.Now())
	}
}

// A request waits for a breaker that is open as long as its route, its client and the server let it. The waits of
// all its attempts count.
func TestHowAWaitForTheBreakerEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(s *town, r *request)
		waited time.Duration
		reason string
	}{
		"its time is over":       {func(*town, *request) {}, 2 * time.Second, policy.OutcomeQueueTimeout.String()},
		"it fails fast":          {func(s *town, _ *request) { s.terms.Queues = false }, 0, policy.OutcomeFailFast.String()},
		"no time to queue":       {func(s *town, _ *request) { s.terms.QueueTimeout = 0 }, 0, policy.OutcomeQueueTimeout.String()},
		"the client's deadline":  {func(s *town, r *request) { r.ask.Deadline = s.clock.Now().Add(time.Second) }, time.Second, policy.OutcomeQueueTimeout.String()},
		"a deadline that passed": {func(s *town, r *request) { r.ask.Deadline = s.clock.Now() }, 0, policy.ReasonDeadline.String()},
		"the client leaves":      {func(_ *town, r *request) { r.meanwhile(time.Second, ClientLeft) }, time.Second, "client left"},
		"a drain begins":         {func(_ *town, r *request) { r.meanwhile(time.Second, DrainBegan) }, time.Second, policy.ReasonDraining.String()},
		"in a drain":             {func(s *town, _ *request) { s.draining.Store(true) }, 0, policy.ReasonDraining.String()},
		"the upstream comes back": {func(s *town, _ *request) {
			time.AfterFunc(500*time.Millisecond, func() { s.down.Store(false) })
		}, 500 * time.Millisecond, ""},
	} {
		inFakeTime(t, nil, func(s *town) {
			s.fail()
			r := s.request()
			tc.change(s, r)
			waited, why := r.admit()
			if name != "the upstream comes back" && r.queued != waited {
				t.Errorf("%s: %v is recorded of a wait of %v", name, r.queued, waited)
			}
			if tc.reason == "" { // by the next probe: after at most 150 ms, and 25 ms for its connection
				if waited < tc.waited || waited > tc.waited+200*time.Millisecond {
					t.Errorf("%s: after %v", name, waited)
				}
				waited = tc.waited
			}
			s.wants(name, r, waited, why, tc.waited, tc.reason)
			if n := s.inFlight(); n != 0 {
				t.Errorf("%s: %d in flight", name, n)
			}
		})
	}
}

// What a request waited before its first attempt is not there for its retry.
func TestTheWaitsOfARequestAtABreakerHaveOneEnd(t *testing.T) {
	inFakeTime(t, nil, func(s *town) {
		s.fail()
		r := s.request()
		time.AfterFunc(1500*time.Millisecond, func() { r.ends <- WaitedOut }) // by whatever
		_, _ = r.admit()
		waited, why := r.admit()
		s.wants("the second wait", r, waited, why, 500*time.Millisecond, policy.OutcomeQueueTimeout.String())
		waited, why = r.admit()
		s.wants("the third", r, waited, why, 0, policy.OutcomeQueueTimeout.String())
		r.Begin()
		waited, why = r.admit()
		s.wants("the next request", r, waited, why, 2*time.Second, policy.OutcomeQueueTimeout.String())
	})
}

// A full queue drops the request that waits longest, which is the one that has the least time left.
func TestAFullQueueDropsTheOldest(t *testing.T) {
	inFakeTime(t, func(o *Options) { o.Max = 1 }, func(s *town) {
		s.fail()
		old := s.request()
		time.AfterFunc(time.Second, func() {
			younger := s.request()
			younger.meanwhile(time.Second/2, ClientLeft)
			_, _ = younger.admit()
		})
		waited, why := old.admit()
		s.wants("the oldest", old, waited, why, time.Second, policy.OutcomeQueueDropped.String())
		time.Sleep(time.Second)
		if n := s.terms.Queue.Stats(); n.Guard.Queued != 0 || n.LongestWait != 0 {
			t.Errorf("%d queued", n.Guard.Queued)
		}
	})
}

// A drain ends the wait of all that are queued at a breaker which opens, and leaves those at the concurrency limit.
func TestADrainEndsTheWaitForAnUpstreamThatIsDown(t *testing.T) {
	inFakeTime(t, func(o *Options) { o.Guard.ConcurrencyLimit, o.Guard.FixedLimit = breaker.ConcurrencyLimitFixed, 1 }, func(s *town) {
		s.terms.LimitQueueTimeout = 3 * time.Second
		permit, _ := s.terms.Queue.AcquireNow(s.clock.Elapsed())
		r := s.request()
		s.draining.Store(true)
		s.down.Store(true)
		time.AfterFunc(time.Second, func() {
			s.terms.Queue.HandleSignal(s.terms.Queue.Guard.Release(permit, s.clock.Elapsed(), breaker.AttemptEnd{Kind: breaker.Refused}))
			for range 3 {
				if p, ok := s.terms.Queue.Guard.AcquireFast(s.clock.Elapsed()); ok {
					s.terms.Queue.HandleSignal(s.terms.Queue.Guard.Release(p, s.clock.Elapsed(), breaker.AttemptEnd{Kind: breaker.Refused}))
				}
			}
		})
		waited, why := r.admit()
		if s.terms.Queue.Guard.State().Breaker == breaker.Closed {
			t.Fatal("the breaker is closed")
		}
		s.wants("a drain", r, waited, why, time.Second, policy.ReasonDraining.String())
	})
}

// At the concurrency limit of a healthy upstream a request waits for a second, or as its route says.
func TestHowAWaitAtTheConcurrencyLimitEnds(t *testing.T) {
	overloaded := policy.OutcomeOverloaded.String()
	for name, tc := range map[string]struct {
		limit  time.Duration // of the wait
		free   time.Duration // when the permit comes back
		waited time.Duration
		reason string
	}{
		"as usual":       {0, time.Minute, time.Second, overloaded},
		"longer":         {3 * time.Second, time.Minute, 3 * time.Second, overloaded},
		"one comes":      {0, 400 * time.Millisecond, 400 * time.Millisecond, ""},
		"one comes late": {0, 1100 * time.Millisecond, time.Second, overloaded},
	} {
		inFakeTime(t, func(o *Options) { o.Guard.ConcurrencyLimit, o.Guard.FixedLimit = breaker.ConcurrencyLimitFixed, 1 }, func(s *town) {
			s.terms.LimitQueueTimeout = tc.limit
			s.terms.Queues = false // which is of the breaker
			first := s.request()
			if _, why := first.admit(); why != nil {
				t.Fatalf("%+v", why)
			}
			time.AfterFunc(tc.free, func() {
				first.ticket.Return(s.clock.Now())
			})
			r := s.request()
			waited, why := r.admit()
			s.wants(name, r, waited, why, tc.waited, tc.reason)
			if r.queued != waited {
				t.Errorf("%s: %v is recorded of a wait of %v", name, r.queued, waited)
			}
			time.Sleep(2 * time.Minute)
			if n := s.inFlight(); n != 0 {
				t.Errorf("%s: %d in flight", name, n)
			}
		})
	}
}

// A retry that waits for a token of the budget gets it in its time, or learns at once that there is none in time.
func TestHowAWaitForABudgetTokenEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		room   time.Duration
		change func(r *request)
		end    WaitEnd
		waited time.Duration
	}{
		"it comes":          {time.Minute, func(*request) {}, WaitedOut, time.Second},
		"not in time":       {500 * time.Millisecond, func(*request) {}, NoToken, 500 * time.Millisecond},
		"the client leaves": {time.Minute, func(r *request) { r.meanwhile(300*time.Millisecond, ClientLeft) }, ClientLeft, 300 * time.Millisecond},
		"a drain begins":    {time.Minute, func(r *request) { r.meanwhile(300*time.Millisecond, DrainBegan) }, DrainBegan, 300 * time.Millisecond},
	} {
		inFakeTime(t, nil, func(s *town) {
			for s.budget.TryRetry(s.clock.Elapsed()) {
			}
			r := s.request()
			r.room = tc.room
			tc.change(r)
			began := s.clock.Now()
			end := r.AwaitToken(&r.ticket, &s.terms)
			waited := s.clock.Now().Sub(began)
			if end != tc.end || waited > tc.waited+maxTokenPoll || name != "not in time" && waited < tc.waited || r.queued != waited {
				t.Errorf("%s: %v after %v, of which %v is recorded", name, end, waited, r.queued)
			}
			if r.ticket.IsOpen() != (end == WaitedOut) {
				t.Errorf("%s: the ticket is open: %v", name, r.ticket.IsOpen())
			}
			if r.ticket.IsOpen() {
				r.ticket.Return(s.clock.Now())
				if s.tokens() != 1 {
					t.Errorf("%s: %d tokens after the ticket came back", name, s.tokens())
				}
			}
		})
	}
	inFakeTime(t, nil, func(s *town) {
		r := s.request()
		if end := r.AwaitToken(&r.ticket, &s.terms); end != WaitedOut || r.queued != 0 || s.tokens() != 0 {
			t.Errorf("%v after %v, though a token is there", end, r.queued)
		}
		r.ticket.Return(s.clock.Now())
	})
}

// A request waits for a slot of the rate limit if that comes in time. Its refusal says when the next one is.
func TestHowAWaitForTheRateLimitEnds(t *testing.T) {
	const slot = 10 * time.Second
	limited := policy.ReasonRateLimited.String()
	for name, tc := range map[string]struct {
		room   time.Duration
		change func(r *request)
		waited time.Duration
		reason string
		after  time.Duration // the Retry-After
	}{
		"it comes":           {time.Minute, func(*request) {}, slot, "", 0},
		"it comes too late":  {9 * time.Second, func(*request) {}, 0, limited, slot},
		"nothing waits":      {0, func(*request) {}, 0, limited, slot},
		"the client's time":  {time.Minute, func(r *request) { r.room = 5 * time.Second }, 0, limited, slot},
		"the client leaves":  {time.Minute, func(r *request) { r.meanwhile(time.Second, ClientLeft) }, time.Second, "client left", 0},
		"a drain begins":     {time.Minute, func(r *request) { r.meanwhile(4*time.Second, DrainBegan) }, 4 * time.Second, policy.ReasonDraining.String(), 6 * time.Second},
		"it waited in vain":  {time.Minute, func(r *request) { r.meanwhile(4*time.Second, WaitedOut) }, 4 * time.Second, limited, slot},
		"a drain at the end": {time.Minute, func(r *request) { r.meanwhile(slot-time.Millisecond, DrainBegan) }, slot, policy.ReasonDraining.String(), time.Second},
	} {
		inFakeTime(t, nil, func(s *town) {
			l := RateLimit{Rate: ratelimit.Rate{Count: 6, Per: time.Minute}}
			s.terms.RateLimits, s.terms.RateLimitWait = NewRateLimits("a", "a", l, 10, s.clock.Elapsed, nil), tc.room
			s.terms.RateLimits.Common.TakeNow(s.clock.Elapsed(), nil)
			r := s.request()
			tc.change(r)
			waited, why := r.admit()
			if why != nil && why.RetryAfter != tc.after && why.RetryAfter != tc.after+time.Second { // a rate is kept with a little room

				t.Errorf("%s: to be retried after %v, want %v", name, why.RetryAfter, tc.after)
			}
			if why != nil && why.Reason == limited && (why.Outcome != policy.OutcomeRateLimited || why.Status != 429) {
				t.Errorf("%s: %+v", name, why)
			}
			if r.queued != waited {
				t.Errorf("%s: %v is recorded of a wait of %v", name, r.queued, waited)
			}
			if tc.waited == slot {
				waited = waited.Round(slot / 20)
			}
			s.wants(name, r, waited, why, tc.waited, tc.reason)
			next := s.request()
			if at, why := next.admit(); name == "it comes" && why == nil && at > 0 {
				t.Errorf("%s: the slot that came back is not free", name)
			} else if why == nil {
				next.ticket.Return(s.clock.Now())
			}
			if n := s.terms.RateLimits.Stats(); n.Waiting != 0 || n.Longest != 0 {
				t.Errorf("%s: %d wait", name, n.Waiting)
			}
		})
	}
}

// Those who wait for slots get them in their order, and one that leaves makes way.
func TestSlotsGoToRequestsInOrder(t *testing.T) {
	inFakeTime(t, nil, func(s *town) {
		l := RateLimit{Rate: ratelimit.Rate{Count: 1, Per: time.Second}}
		s.terms.RateLimits, s.terms.RateLimitWait = NewRateLimits("a", "a", l, 3, s.clock.Elapsed, nil), time.Minute
		s.terms.RateLimits.Common.TakeNow(s.clock.Elapsed(), nil)
		type came struct {
			n     int
			after time.Duration
			why   *Refusal
		}
		all := make(chan came, 10)
		for n := range 4 {
			r := s.request()
			if n == 1 {
				r.meanwhile(1500*time.Millisecond, ClientLeft)
			}
			go func() {
				waited, why := r.admit()
				if why == nil {
					r.ticket.Release(s.clock.Now(), &policy.Result{Cause: policy.CauseStatus, Status: 200}, sentWhole(s.clock.Now()), false)
				}
				all <- came{n, waited.Round(100 * time.Millisecond), why}
			}()
			synctest.Wait()
		}
		if n := s.terms.RateLimits.Stats(); n.Waiting != 3 {
			t.Errorf("%d wait", n.Waiting)
		}
		var order []int
		for range 4 {
			c := <-all
			order = append(order, c.n)
			if wants := map[int]time.Duration{0: time.Second, 1: 1500 * time.Millisecond, 2: 2 * time.Second, 3: 0}; c.after != wants[c.n] {
				t.Errorf("request %d after %v: %+v", c.n, c.after, c.why)
			}
			if (c.why != nil) != (c.n == 1 || c.n == 3) {
				t.Errorf("request %d: %+v", c.n, c.why)
			}
		}
		if !slices.Equal(order, []int{3, 0, 1, 2}) { // there is no room for the last
			t.Errorf("the order %v", order)
		}
	})
}

// In a fleet whose engine does not answer, a request has a slot of the process's share soon.
func TestASlotIsNotAwaitedForLongFromAnEngineThatIsSilent(t *testing.T) {
	inFakeTime(t, nil, func(s *town) {
		s.limitTokens(RateLimit{Rate: ratelimit.Rate{Count: 100, Per: time.Second}}, true)
		s.terms.RateLimits.Share(2)
		r := s.request()
		waits := make(chan time.Duration, 1)
		go func() {
			waited, _ := r.admit()
			waits <- waited
		}()
		synctest.Wait()
		asks, _ := s.terms.RateLimits.Ask(nil, s.clock.Elapsed())
		if len(asks) != 1 || asks[0].Want == 0 {
			t.Fatalf("%+v", asks)
		}
		if waited := <-waits; waited > 150*time.Millisecond {
			t.Errorf("it waits %v", waited)
		}
	})
}

// A request waits for the end of a rate-limit pause and a little longer, if it has the time.
func TestHowAWaitForTheEndOfAPauseEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		change         func(s *town, r *request)
		least, most    time.Duration
		reason         string
		outcome, later policy.Outcome // of the first attempt, and of a retry
		after          time.Duration
	}{
		"it ends": {func(*town, *request) {}, 2 * time.Second, 3 * time.Second, "", 0, 0, 0},
		"another begins": {func(s *town, r *request) {
			time.AfterFunc(time.Second, func() { r.pause.Add(int64(4 * time.Second)) })
		}, 6 * time.Second, 8 * time.Second, "", 0, 0, 0},
		"the route has none": {func(s *town, _ *request) { s.terms.Pauses = false }, 0, 0, "", 0, 0, 0},
		"it is too long": {func(_ *town, r *request) { r.room = 2 * time.Second }, 0, 0, policy.ReasonRateLimitPause.String(),
			policy.OutcomeRateLimitPause, policy.GaveUp(policy.ReasonRateLimitPause), 2 * time.Second},
		"no time is left":   {func(_ *town, r *request) { r.room = 0 }, 0, 0, policy.ReasonDeadline.String(), policy.GaveUp(policy.ReasonDeadline), policy.GaveUp(policy.ReasonDeadline), 0},
		"the client leaves": {func(_ *town, r *request) { r.meanwhile(time.Second, ClientLeft) }, time.Second, time.Second, "client left", 0, 0, 0},
		"a drain begins": {func(_ *town, r *request) { r.meanwhile(time.Second, DrainBegan) }, time.Second, time.Second, policy.ReasonDraining.String(),
			policy.GaveUp(policy.ReasonDraining), policy.GaveUp(policy.ReasonDraining), 2 * time.Second},
	} {
		for _, first := range []bool{true, false} {
			inFakeTime(t, nil, func(s *town) {
				s.terms.Pauses = true
				r := s.request()
				r.ask.First = first
				r.pause.Store(int64(s.clock.Now().Add(2 * time.Second)))
				tc.change(s, r)
				waited, why := r.admit()
				outcome := tc.later
				if first {
					outcome = tc.outcome
				}
				if why != nil && !why.ClientLeft && (why.Outcome != outcome || why.RetryAfter != tc.after) {
					t.Errorf("%s: %v, to be retried after %v", name, why.Outcome, why.RetryAfter)
				}
				if waited < tc.least || waited > tc.most || r.queued != waited {
					t.Errorf("%s: %v, of which %v is recorded", name, waited, r.queued)
				}
				s.wants(name, r, waited, why, waited, tc.reason)
			})
		}
	}
}

// A client that is refused is told when the next probe is due, in 1 to 30 s.
func TestARefusedClientIsToldWhenTheNextProbeIs(t *testing.T) {
	for wait, want := range map[time.Duration]int{0: 1, time.Millisecond: 1, 1500 * time.Millisecond: 2, 10 * time.Second: 10, time.Hour: 30} {
		inFakeTime(t, func(o *Options) { o.Guard.After, o.Guard.Backoff = 1, backoff.Fixed{Base: wait} }, func(s *town) {
			q := s.terms.Queue
			permit, _ := q.AcquireNow(q.elapsed())
			q.HandleSignal(q.Guard.Release(permit, q.elapsed(), breaker.AttemptEnd{Kind: breaker.Responded, Status: 503}))
			if n := q.RetryAfter(); n != want {
				t.Errorf("%d s with a probe in %v", n, wait)
			}
		})
	}
}

// The log says once an outage why it began, that requests wait, and that it is over.
func TestTheLogOfAnOutage(t *testing.T) {
	inFakeTime(t, nil, func(s *town) {
		for range 2 {
			s.lines.TakeAll()
			s.terms.Queue.lastCause = (&DialFailures{}).lastCause
			s.fail()
			for range 2 {
				r := s.request()
				_, _ = r.admit()
			}
			s.down.Store(false)
			for s.terms.Queue.Guard.State().Breaker != breaker.Closed {
				r := s.request()
				if _, why := r.admit(); why == nil {
					r.ticket.Release(s.clock.Now(), &policy.Result{Cause: policy.CauseStatus, Status: 200}, sentWhole(s.clock.Now()), false)
				}
				time.Sleep(100 * time.Millisecond)
			}
			for range 100 { // until its next event
				if len(s.logged()) > 2 {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			want := []string{"circuit breaker opened", "the upstream refuses connections; requests are queued", "circuit breaker closed"}
			if got := s.logged(); !slices.Equal(got, want) {
				t.Errorf("%s", strings.Join(got, "\n"))
			}
			for _, line := range s.lines.All() {
				if line.ContextMap()["upstream"] == "" {
					t.Errorf("%s: of which upstream?", line.Message)
				}
			}
		}
	})
}

// sentWhole returns the progress of an attempt that was sent.
func sentWhole(at clock.Instant) attempt.Progress {
	return attempt.Progress{SentSome: true, Sent: true, SentAt: at, Begun: true}
}
