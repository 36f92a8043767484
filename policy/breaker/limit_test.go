package breaker

import (
	"testing"
	"time"
)

// Twice as much comes as is answered: a limit binds, at what was in flight.
func TestOverloadBindsTheLimit(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	for range 10 {
		d.acquire()
	}
	for began := d.now; d.g.State().LimitBound == 0; d.advance(10 * time.Millisecond) {
		if d.now > began+10*time.Second {
			t.Fatalf("not bound with %d in flight", len(d.out))
		}
		d.acquire()
		d.acquire()
		d.end(0, AttemptEnd{Status: 200})
	}
	if n, s := len(d.out), d.g.State(); n > 800 || s.ConcurrencyLimit < n*9/10 || s.ConcurrencyLimit > n {
		t.Errorf("%d in flight, limit %d", n, s.ConcurrencyLimit)
	}
	d.want(Closed, OpenedByNothing)
}

// A burst, and a long poll that ends, count with their share of time, and no more than was in flight.
func TestLearnedConcurrency(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range 5 {
		for range 10 {
			d.acquire()
		}
		d.handleSignal(d.g.Expire(d.now))
		d.now += 10 * time.Millisecond
		for len(d.out) > 0 {
			d.end(0, AttemptEnd{Status: 200})
		}
		d.advance(2 * time.Second)
		d.handleSignal(d.g.Expire(d.now))
	}
	if c := d.g.State().LearnedConcurrency; c > 1 {
		t.Errorf("%v after bursts of 10 ms", c)
	}
	d.acquire()
	for range 60 {
		d.advance(time.Second)
		d.handleSignal(d.g.Expire(d.now))
	}
	d.end(0, AttemptEnd{Status: 200})
	for range 3 { // so that the window is no slower than usual
		d.acquire()
		d.now += 10 * time.Millisecond
		d.end(0, AttemptEnd{Status: 200})
	}
	d.advance(time.Second)
	d.handleSignal(d.g.Expire(d.now))
	if c := d.g.State().LearnedConcurrency; c > 1.1 {
		t.Errorf("%v after a long poll", c)
	}
}

// Without a breaker, failing responses bind the limit, once. Refused connections do not.
func TestWithoutABreakerFailuresBindTheLimit(t *testing.T) {
	for e, want := range map[AttemptEnd]uint64{{Status: 503}: 1, {Kind: Refused}: 0} {
		d := newGuardHarness(t, Options{NoBreaker: true})
		for range 2 * many {
			d.acquire()
			d.end(0, e)
		}
		if n := d.g.State().LimitBound; n != want {
			t.Errorf("%+v: bound %d times, want %d", e, n, want)
		}
	}
}

// Who comes now does not overtake who waits, even if a permit is free.
func TestNobodyOvertakesTheQueue(t *testing.T) {
	g := New(Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 1})
	p, _ := g.Acquire(0, Request{})
	g.Acquire(0, Request{})
	if s := g.Release(p, 0, AttemptEnd{Status: 200}); s&SignalWake == 0 {
		t.Fatal("nobody is woken")
	}
	if _, v := g.Acquire(0, Request{}); v != VerdictAtLimit {
		t.Errorf("verdict %d behind one who waits", v)
	}
}

// Long polls in flight keep their permits in an outage, but hold no place in the slow start after it.
func TestASlowStartHasRoomForLongPolls(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range 20 {
		d.acquire() // a long poll
	}
	d.serve(15*time.Second, 5, 10*time.Millisecond)
	d.acquire()
	d.end(len(d.out)-1, AttemptEnd{Kind: Refused})
	d.advance(50 * time.Millisecond)
	d.endDial(Connected)
	d.want(SlowStart, OpenedByRefused)
	if v := d.acquire(); v != VerdictGo {
		t.Errorf("verdict %d beside 20 long polls", v)
	}
}

// An upstream that takes longer, and answers all the same, is not overloaded.
func TestSlowerResponsesAreNoOverload(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.serve(15*time.Second, 100, 250*time.Millisecond)
	if s := d.g.State(); s.LimitBound > 0 {
		t.Errorf("%+v", s)
	}
}

// Nor is one that is slow twice, the second time at a higher load.
func TestEachSlownessIsJudgedByItself(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.serve(5*time.Second, 100, 250*time.Millisecond)
	d.serve(5*time.Second, 100, 100*time.Millisecond)
	d.serve(5*time.Second, 400, 250*time.Millisecond)
	if s := d.g.State(); s.LimitBound > 0 {
		t.Errorf("%+v", s)
	}
}

// Responses come, but clients leave before theirs, with far more in flight than ever went well: after ten of
// them the window binds, at what is in flight.
func TestClientsThatLeaveAnOverloadedUpstreamBindTheLimit(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 20*time.Millisecond)
	for range 60 {
		d.acquire()
	}
	d.now += 300 * time.Millisecond
	left := 0
	for ; left < 30 && d.g.State().LimitBound == 0; left++ {
		d.acquire()
		d.end(len(d.out)-1, AttemptEnd{Status: 200})
		d.advance(40 * time.Millisecond)
		_, s := d.g.Abandon(d.out[0], d.now, AttemptEnd{Kind: Abandoned, Closed: true})
		d.out = d.out[1:]
		d.handleSignal(s)
	}
	if s := d.g.State(); left != several || s.ConcurrencyLimit != 60 {
		t.Errorf("limit %d after %d clients left", s.ConcurrencyLimit, left)
	}
}

// What was learned does not fade while the breaker is open.
func TestAnOutageIsNotLearned(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	before := d.g.State().LearnedConcurrency
	d.acquire()
	d.end(0, AttemptEnd{Kind: Refused})
	for end := d.now + 10*time.Minute; d.now < end; d.advance(time.Second) {
		for len(d.dial) > 0 {
			d.endDial(Refused)
		}
	}
	for len(d.dial) == 0 {
		d.advance(time.Second)
	}
	d.endDial(Connected)
	d.advance(3 * time.Second)
	d.want(Closed, OpenedByRefused)
	for range 3 {
		d.acquire()
		d.advance(2 * time.Second)
		d.end(0, AttemptEnd{Status: 200})
	}
	if after := d.g.State().LearnedConcurrency; after < 0.9*before {
		t.Errorf("%v after an outage, %v before", after, before)
	}
}

// Whatever latency says, three requests may be in flight.
func TestLatencyLeavesRoomForThree(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.refuseOnce(10)
	for range 3 {
		for len(d.out) > 1 {
			d.now += 100 * time.Millisecond
			d.end(0, AttemptEnd{Status: 200})
		}
		d.now += 10 * time.Millisecond
		d.end(0, AttemptEnd{Status: 200})
		d.acquire()
		if s := d.g.State(); s.Breaker == SlowStart && d.g.core.window.phase == seek && s.ConcurrencyLimit < 3 {
			t.Fatalf("limited to %d", s.ConcurrencyLimit)
		}
	}
	if d.g.core.window.phase != seek {
		t.Errorf("phase %d", d.g.core.window.phase)
	}
}
