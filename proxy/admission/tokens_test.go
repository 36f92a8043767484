package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// limitTokens gives the house a rate limit, whose slots the processes of a fleet share if shared.
func (s *town) limitTokens(l RateLimit, shared bool) {
	var wanted func()
	if shared {
		wanted = func() { s.wanted.Add(1) }
	}
	s.terms.RateLimits, s.terms.RateLimitWait = NewRateLimits("a", "a", l, 10, s.clock.Elapsed, wanted), time.Minute
}

// uses returns a request that is expected to use so many tokens.
func (s *town) uses(tokens int64) *request {
	r := s.request()
	r.use = &Use{Estimate: ratelimit.Estimate{Output: tokens}}
	return r
}

// admitted returns after how long a request is admitted that uses so many tokens.
func (s *town) admitted(tokens int64) (*request, time.Duration) {
	s.t.Helper()
	r := s.uses(tokens)
	waited, why := r.admit()
	if why != nil {
		s.t.Errorf("%+v", why)
	}
	return r, waited
}

// answered settles the ticket of a request after a response.
func (r *request) answered() {
	if r.ticket.IsOpen() {
		r.ticket.slot = nil // it was used
		r.ticket.Return(r.h.clock.Now())
	}
}

const hundredASecond = 6000 // tokens a minute

// An attempt takes from a limit of tokens what it is expected to use. What it did not use is there for the next one,
// once.
func TestTokensThatWereNotUsedComeBack(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(s *town, r *request)
		waited time.Duration // of one that needs 3120 of the 2000 that are left
		used   int64         // tokens in the end, of both
	}{
		"used as expected": {func(_ *town, r *request) { r.use.Settle(ratelimit.Cost{Output: 4000}); r.answered() }, 11 * time.Second, 4000},
		"used less":        {func(_ *town, r *request) { r.use.Settle(ratelimit.Cost{Input: 500, Output: 500}); r.answered() }, time.Second, 1000},
		"used more":        {func(_ *town, r *request) { r.use.Settle(ratelimit.Cost{Output: 4500}); r.answered() }, 16 * time.Second, 4500},
		"used once": {func(_ *town, r *request) {
			r.use.Settle(ratelimit.Cost{Output: 3900})
			r.use.Settle(ratelimit.Cost{Output: 100})
			r.answered()
		}, 10 * time.Second, 4000},
		"rejected":        {func(_ *town, r *request) { r.use.Learn(nil, true); r.answered() }, time.Second, 0},
		"rejected, twice": {func(_ *town, r *request) { r.use.Learn(nil, true); r.use.Learn(nil, true); r.answered() }, time.Second, 0},
		"accepted":        {func(_ *town, r *request) { r.use.Learn(nil, false); r.answered() }, 11 * time.Second, 0},
		"not sent":        {func(s *town, r *request) { r.ticket.Return(s.clock.Now()) }, time.Second, 0},
		"not sent, but settled": {func(s *town, r *request) {
			r.ticket.Return(s.clock.Now())
			r.use.Settle(ratelimit.Cost{Output: 4000})
			r.use.Learn(nil, true)
		}, time.Second, 0},
	} {
		inFakeTime(t, nil, func(s *town) {
			s.limitTokens(RateLimit{Tokens: ratelimit.Rate{Count: hundredASecond, Per: time.Minute}}, false)
			r, at := s.admitted(4000)
			if at != 0 || !r.use.IsCounted() || r.use.Learns() {
				t.Errorf("%s: the first waits %v, counted %v, learns %v", name, at, r.use.IsCounted(), r.use.Learns())
			}
			time.AfterFunc(time.Second, func() { tc.end(s, r) })
			next, waited := s.admitted(3000)
			if waited.Round(time.Second) != tc.waited { // a rate is kept with a little room
				t.Errorf("%s: the next waits %v, want %v", name, waited, tc.waited)
			}
			next.use.Settle(ratelimit.Cost{})
			next.answered()
			if n := s.terms.RateLimits.Stats(); n.Tokens != tc.used || n.TokenLimit > hundredASecond || n.TokenLimit < 0.98*hundredASecond {
				t.Errorf("%s: %d tokens in the last minute of %v", name, n.Tokens, n.TokenLimit)
			}
			time.Sleep(2 * time.Minute)
			if n := s.terms.RateLimits.Stats().Tokens; n != 0 {
				t.Errorf("%s: %d tokens in the last minute, two minutes later", name, n)
			}
		})
	}
}

// A request is refused at once if those before it need more tokens than there will be in its time, and those who
// leave need none.
func TestTheWaitForTokensIsEstimatedBehindTheOthers(t *testing.T) {
	inFakeTime(t, nil, func(s *town) {
		s.limitTokens(RateLimit{Tokens: ratelimit.Rate{Count: hundredASecond, Per: time.Minute}}, false)
		_, _ = s.admitted(6000)
		s.terms.RateLimitWait = 40 * time.Second
		first := s.uses(3000) // after 31 s
		first.meanwhile(5*time.Second, ClientLeft)
		go func() { _, _ = first.admit() }()
		time.Sleep(time.Second)
		if waited, why := s.uses(3000).admit(); why == nil || waited != 0 || why.RetryAfter < 59*time.Second || why.RetryAfter > 62*time.Second {
			t.Errorf("behind the first after %v: %+v", waited, why)
		}
		time.Sleep(5 * time.Second)
		if _, waited := s.admitted(3000); waited.Round(time.Second) != 26*time.Second {
			t.Errorf("after the first left: %v", waited)
		}
	})
}

// Without a limit of its own, what the responses say is the limit.
func TestALimitIsLearnedFromResponses(t *testing.T) {
	window := ratelimit.Reading{Row: 1, Kind: ratelimit.Requests, Model: ratelimit.Windowed, Limit: 10, Remaining: 0, Reset: 5 * time.Second}
	for name, tc := range map[string]struct {
		said   []ratelimit.Reading
		waited time.Duration
	}{
		"nothing":     {nil, 0},
		"all is used": {[]ratelimit.Reading{window}, 5 * time.Second},
	} {
		inFakeTime(t, nil, func(s *town) {
			s.limitTokens(RateLimit{Learn: true}, false)
			r, at := s.admitted(100)
			if at != 0 || !r.use.Learns() {
				t.Errorf("%s: the first waits %v, learns %v", name, at, r.use.Learns())
			}
			r.use.Learn(tc.said, false)
			if _, waited := s.admitted(100); waited != tc.waited {
				t.Errorf("%s: the next waits %v", name, waited)
			}
		})
	}
	inFakeTime(t, nil, func(s *town) { // a better one lets those in who wait
		s.limitTokens(RateLimit{Learn: true}, false)
		r, _ := s.admitted(100)
		other, _ := s.admitted(100)
		r.use.Learn([]ratelimit.Reading{window}, false)
		time.AfterFunc(time.Second, func() {
			better := window
			better.Remaining, better.Reset = 10, 0
			other.use.Learn([]ratelimit.Reading{better}, false)
		})
		if _, waited := s.admitted(100); waited.Round(100*time.Millisecond) != time.Second {
			t.Errorf("it waits %v", waited)
		}
	})
}

// asks returns the account that is due and how long until the next one is.
func (s *town) asks() (*ratelimit.Account, time.Duration) {
	now := s.clock.Elapsed()
	asks, next := s.terms.RateLimits.Ask(nil, now)
	if len(asks) > 1 {
		s.t.Errorf("%d questions", len(asks))
	}
	if len(asks) == 0 {
		return nil, next - now
	}
	return asks[0].Account, next - now
}

// answers is the engine's answer to an account.
func (s *town) answers(b ratelimit.Balance) {
	s.terms.RateLimits.Common.ApplyGrant(s.clock.Elapsed(), ratelimit.LeaseGrant{Balance: &b})
}

// level returns the state of the configured limit with that many tokens left.
func level(left float64) []ratelimit.BucketState {
	return []ratelimit.BucketState{{Row: 255, Kind: ratelimit.Tokens, Limit: hundredASecond, Level: left, FullIn: -1, EndsIn: -1, FreeIn: -1}}
}

// A process asks for an attempt before it sends it. It sends it as soon as the answer grants it, and otherwise asks
// again when the answer says; if none comes, it uses its part of the limit.
func TestAnAttemptIsAskedForInAFleet(t *testing.T) {
	const processes = 4
	for name, tc := range map[string]struct {
		after  time.Duration // of the answer
		answer func(s *town)
		waited time.Duration
		sent   int64 // attempts that are told with the next account
	}{
		"granted":     {30 * time.Millisecond, func(s *town) { s.answers(ratelimit.Balance{Granted: true, Buckets: level(1000)}) }, 30 * time.Millisecond, 0},
		"not granted": {30 * time.Millisecond, func(s *town) { s.answers(ratelimit.Balance{Wait: 20 * time.Millisecond, Buckets: level(0)}) }, time.Minute, 0},
		"there is plenty": {30 * time.Millisecond, func(s *town) { s.answers(ratelimit.Balance{Wait: time.Second, Buckets: level(hundredASecond)}) },
			30 * time.Millisecond, 1},
		"no answer":    {time.Hour, nil, answerWithin, 1},
		"it failed":    {20 * time.Millisecond, func(s *town) { s.terms.RateLimits.Common.FailRequest(s.clock.Elapsed()) }, 20 * time.Millisecond, 1},
		"another kind": {20 * time.Millisecond, func(s *town) { s.terms.RateLimits.Common.ApplyGrant(s.clock.Elapsed(), ratelimit.LeaseGrant{Slots: 1}) }, answerWithin, 0},
	} {
		inFakeTime(t, nil, func(s *town) {
			s.limitTokens(RateLimit{Tokens: ratelimit.Rate{Count: hundredASecond, Per: time.Minute}}, true)
			s.terms.RateLimits.Share(processes)
			r := s.uses(500)
			waits := make(chan time.Duration, 1)
			go func() {
				waited, _ := r.admit()
				waits <- waited
			}()
			synctest.Wait()
			if s.wanted.Load() == 0 {
				t.Errorf("%s: nobody is asked", name)
			}
			if a, _ := s.asks(); a == nil || a.Next == nil || *a.Next != (ratelimit.Cost{Output: 500}) || a.Sent.Attempts != 0 || a.Fixed.Count != hundredASecond {
				t.Fatalf("%s: asked %+v", name, a)
			}
			if a, next := s.asks(); a != nil || next < time.Hour {
				t.Errorf("%s: asked again before the answer: %+v, and in %v", name, a, next)
			}
			time.Sleep(tc.after)
			if tc.answer != nil {
				tc.answer(s)
			}
			synctest.Wait()
			if name == "not granted" {
				if a, next := s.asks(); a != nil || next != 20*time.Millisecond {
					t.Errorf("asked again at once: %+v, or in %v", a, next)
				}
				time.Sleep(20 * time.Millisecond)
				if a, _ := s.asks(); a == nil || a.Next == nil {
					t.Errorf("not asked again: %+v", a)
				}
				s.answers(ratelimit.Balance{Granted: true, Buckets: level(0)})
				if waited := <-waits; waited != 50*time.Millisecond {
					t.Errorf("admitted after %v", waited)
				}
				return
			}
			if waited := <-waits; waited != tc.waited {
				t.Errorf("%s: admitted after %v, want %v", name, waited, tc.waited)
			}
			if !r.use.Taken || r.use.Cost != (ratelimit.Cost{Output: 500}) || !r.use.IsCounted() {
				t.Errorf("%s: %+v", name, r.use)
			}
			if tc.answer == nil {
				return
			}
			time.Sleep(answerWithin)
			if a, _ := s.asks(); tc.sent > 0 && (a == nil || a.Sent.Attempts != tc.sent || a.Sent.Output != 500*tc.sent || a.Next != nil) || tc.sent == 0 && a != nil {
				t.Errorf("%s: told %+v", name, a)
			}
		})
	}
}

// granted returns a request whose attempt was asked for and granted, with that many tokens left of the limit.
func (s *town) granted(tokens int64, left float64) *request {
	s.t.Helper()
	r := s.uses(tokens)
	done := make(chan *Refusal, 1)
	go func() {
		_, why := r.admit()
		done <- why
	}()
	synctest.Wait()
	if a, _ := s.asks(); a == nil {
		s.t.Fatal("not asked")
	}
	s.answers(ratelimit.Balance{Granted: true, Buckets: level(left)})
	if why := <-done; why != nil {
		s.t.Fatalf("%+v", why)
	}
	return r
}

// asked returns the account that a request for an attempt leads to, and a channel with how long it waits then.
func (s *town) asked(tokens int64) (<-chan time.Duration, *ratelimit.Account) {
	waits := make(chan time.Duration, 1)
	go func() {
		_, waited := s.admitted(tokens)
		waits <- waited
	}()
	synctest.Wait()
	a, _ := s.asks()
	return waits, a
}

// An answer that left plenty is relied on for a second, in which attempts are sent at once and told afterwards.
func TestAnAnswerThatLeftPlentyIsReliedOn(t *testing.T) {
	inFakeTime(t, nil, func(s *town) {
		s.limitTokens(RateLimit{Tokens: ratelimit.Rate{Count: hundredASecond, Per: time.Minute}}, true)
		s.terms.RateLimits.Share(2)
		s.granted(10, 5000)
		for range 2 {
			if _, waited := s.admitted(10); waited != 0 {
				t.Errorf("it waits %v although there is plenty", waited)
			}
		}
		if a, next := s.asks(); a != nil || next != reportEvery {
			t.Errorf("told at once: %+v, or in %v", a, next)
		}
		time.Sleep(reportEvery)
		if a, _ := s.asks(); a == nil || a.Sent != (ratelimit.Charge{Attempts: 2, Cost: ratelimit.Cost{Output: 20}}) || a.Next != nil {
			t.Errorf("told %+v", a)
		}
		s.answers(ratelimit.Balance{Buckets: level(5000)})
		if a, next := s.asks(); a != nil || next < time.Hour {
			t.Errorf("told again: %+v, or in %v", a, next)
		}
		time.Sleep(time.Second)
		waited, a := s.asked(10)
		if a == nil || a.Next == nil || <-waited != answerWithin {
			t.Errorf("after the answer is too old it asks %+v", a)
		}
	})
	inFakeTime(t, nil, func(s *town) { // longer if nobody knows of a limit
		s.limitTokens(RateLimit{Learn: true}, true)
		s.terms.RateLimits.Share(2)
		r := s.granted(10, 0)
		r.use.queue.tokens.shared.answer(s.clock.Elapsed(), &r.use.queue.tokens.buckets, &ratelimit.Balance{}, nil)
		time.Sleep(9 * time.Second)
		if _, waited := s.admitted(10); waited != 0 {
			t.Errorf("it waits %v although no limit is known", waited)
		}
		time.Sleep(2 * time.Second)
		waited, a := s.asked(10)
		if a == nil || a.Next == nil || <-waited != answerWithin {
			t.Errorf("after the answer is too old it asks %+v", a)
		}
	})
}

// What responses say and use is told, the newest of it.
func TestWhatResponsesSayIsToldToTheFleet(t *testing.T) {
	inFakeTime(t, nil, func(s *town) {
		s.limitTokens(RateLimit{Tokens: ratelimit.Rate{Count: hundredASecond, Per: time.Minute}}, true)
		s.terms.RateLimits.Share(2)
		r := s.granted(500, 0)
		time.Sleep(300 * time.Millisecond)
		before := s.wanted.Load()
		var said []ratelimit.Reading
		for row := range uint8(maxObservations + 2) {
			said = append(said, ratelimit.Reading{Row: row, Kind: ratelimit.Requests, Limit: 10, Remaining: 5})
		}
		r.use.Learn(said, false)
		if s.wanted.Load() == before {
			t.Error("nobody is told")
		}
		r.use.Settle(ratelimit.Cost{Input: 1, Output: 200})
		a, _ := s.asks()
		if a == nil || len(a.Learnt) != maxObservations || a.Learnt[0].Row != 2 || a.Learnt[maxObservations-1].Row != maxObservations+1 {
			t.Fatalf("%+v", a)
		}
		if o := a.Learnt[0]; o.Took != 300*time.Millisecond || o.Rejected || o.Remaining != 5 {
			t.Errorf("told %+v", o)
		}
		if a.Settled != (ratelimit.Cost{Input: 1, Output: -300}) || a.Sent != (ratelimit.Charge{}) {
			t.Errorf("told that %+v was used beyond what was expected, and sent %+v", a.Settled, a.Sent)
		}
		s.answers(ratelimit.Balance{Buckets: level(0)})
		if a, _ := s.asks(); a != nil {
			t.Errorf("told again: %+v", a)
		}
		if n := s.terms.RateLimits.Stats().Tokens; n != 201 {
			t.Errorf("%d tokens in the last minute", n)
		}
	})
	inFakeTime(t, nil, func(s *town) { // one that was rejected used nothing
		s.limitTokens(RateLimit{Tokens: ratelimit.Rate{Count: hundredASecond, Per: time.Minute}}, true)
		r := s.granted(500, 0)
		r.use.Learn([]ratelimit.Reading{{Row: 1, Kind: ratelimit.Requests, Limit: 10}}, true)
		time.Sleep(reportEvery)
		if a, _ := s.asks(); a == nil || a.Sent.Attempts != -1 || a.Sent.Output != -500 || len(a.Learnt) != 1 || !a.Learnt[0].Rejected {
			t.Errorf("told %+v", a)
		}
	})
}

// An attempt that is granted when its request has left is given back.
func TestAnAttemptThatIsGrantedTooLateIsGivenBack(t *testing.T) {
	inFakeTime(t, nil, func(s *town) {
		s.limitTokens(RateLimit{Tokens: ratelimit.Rate{Count: hundredASecond, Per: time.Minute}}, true)
		r := s.uses(500)
		r.meanwhile(10*time.Millisecond, ClientLeft)
		go func() { _, _ = r.admit() }()
		synctest.Wait()
		if a, _ := s.asks(); a == nil || a.Next == nil {
			t.Fatalf("%+v", a)
		}
		time.Sleep(20 * time.Millisecond)
		s.answers(ratelimit.Balance{Granted: true, Buckets: level(0)})
		time.Sleep(reportEvery)
		if a, _ := s.asks(); a == nil || a.Sent.Attempts != -1 || a.Sent.Output != -500 {
			t.Errorf("told %+v", a)
		}
	})
}

// Without the engine the processes of a fleet together use what there is.
func TestAProcessAloneUsesItsPartOfTheTokens(t *testing.T) {
	for _, processes := range []int{1, 4} {
		inFakeTime(t, nil, func(s *town) {
			s.limitTokens(RateLimit{Tokens: ratelimit.Rate{Count: hundredASecond, Per: time.Minute}}, true)
			s.terms.RateLimits.Share(processes)
			s.terms.RateLimits.Common.FailRequest(s.clock.Elapsed())
			s.terms.RateLimitWait = 0
			n := 0
			for ; n < 100; n++ {
				r := s.uses(100)
				if _, why := r.admit(); why != nil {
					break
				}
				r.answered()
			}
			if want := 6000/100/processes - 1; n < want-1 || n > want+1 {
				t.Errorf("one of %d sends %d attempts, want %d", processes, n, want)
			}
		})
	}
}

// What is not told yet is not forgotten.
func TestAnAccountIsForgottenOnceAllIsTold(t *testing.T) {
	a := newTokenAccount(&RateLimit{Tokens: ratelimit.Rate{Count: hundredASecond, Per: time.Minute}}, 0, true)
	if !a.idle(0) {
		t.Error("a new one is needed")
	}
	a.shared.ask(time.Second, &a.buckets, &Waiter{Use: &Use{}})
	if a.idle(time.Second) {
		t.Error("one with a question is not needed")
	}
	a.shared.answer(time.Second, &a.buckets, &ratelimit.Balance{}, nil)
	if !a.idle(time.Second) {
		t.Error("one with an answer is needed")
	}
	a.take(time.Second, &Use{Estimate: ratelimit.Estimate{Output: 100}})
	if a.idle(time.Second) || !a.idle(10*time.Second) {
		t.Error("it is not needed as long as tokens are missing")
	}
	b := newTokenAccount(&RateLimit{Learn: true, Probe: time.Second}, 0, true)
	if told := b.shared.ask(0, &b.buckets, nil); told.Probe != time.Second || b.buckets.Probe != time.Second {
		t.Errorf("%+v", told)
	}
}
