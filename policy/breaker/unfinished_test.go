package breaker

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// sending takes a permit for a request that is not complete.
func (d *guardHarness) sending() Permit {
	d.t.Helper()
	p, v := d.g.Acquire(d.now, Request{Unfinished: true})
	if v != VerdictGo {
		d.t.Fatalf("verdict %d", v)
	}
	return d.g.Sending(p)
}

// sent records that the request with permit p is sent completely now.
func (d *guardHarness) sent(p Permit) Permit {
	d.t.Helper()
	p, s := d.g.Sent(p, d.now)
	d.handleSignal(s)
	return p
}

// If a request is not sent completely, its client is the reason, not the upstream.
func TestRequestsThatAreNotSentWholeAreNoEvidence(t *testing.T) {
	for name, e := range map[string]AttemptEnd{
		"503": {Status: 503}, "reset": {Kind: Reset}, "timed out": {Kind: TimedOut}, "left": {Kind: Abandoned, Closed: true},
	} {
		d := newGuardHarness(t, Options{})
		d.serve(10*time.Second, 50, 10*time.Millisecond)
		for range 100 {
			p := d.sending()
			d.advance(3 * time.Second)
			if e.Kind == TimedOut || e.Kind == Abandoned {
				_, s := d.g.Abandon(p, d.now, e)
				d.handleSignal(s)
			} else {
				d.handleSignal(d.g.Release(p, d.now, e))
			}
		}
		s := d.g.State()
		if s.Breaker != Closed || s.LimitBound > 0 || s.InFlight != 0 || s.Abandoned != 0 || s.MedianLatency > 20*time.Millisecond || d.g.counters.sending.Load() != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// The latency of a request begins when it is sent completely; from then on it can be missing.
func TestARequestCountsFromWhenItIsSentWhole(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range 200 {
		p := d.sending()
		d.now += 2 * time.Second
		p = d.sent(p)
		d.now += 10 * time.Millisecond
		d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Status: 200}))
	}
	about(t, "usual", d.g.State().MedianLatency, 10*time.Millisecond)
	for range 5 {
		d.sent(d.sending())
	}
	for end := d.now + 5*time.Second; d.now < end; d.now += 50 * time.Millisecond {
		d.g.Expire(d.now)
	}
	d.want(HalfOpen, OpenedByStall)
}

// A failed connection is evidence whatever the request.
func TestARefusedConnectionCountsWhateverItIsFor(t *testing.T) {
	for kind, why := range map[EndKind]OpenedBy{Refused: OpenedByRefused, DialFailed: OpenedByDial} {
		d := newGuardHarness(t, Options{})
		d.handleSignal(d.g.Release(d.sending(), d.now, AttemptEnd{Kind: kind}))
		d.want(Open, why)
		if n := d.g.counters.sending.Load(); n != 0 {
			t.Errorf("%d are sent", n)
		}
	}
}

// If nothing else waits, incomplete requests are admitted now and then. One that is sent completely
// and answered closes the breaker.
func TestUnfinishedRequestsAloneAreAdmittedNowAndThen(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.fail()
	d.advance(time.Second)
	first := d.sending()
	for range 5 {
		if _, v := d.g.Acquire(d.now, Request{Unfinished: true}); v != VerdictBreakerOpen {
			t.Fatalf("verdict %d beside the one let through", v)
		}
		d.line++
	}
	if at := d.g.NextEvent(); at <= d.now || at > d.now+rhythms[OpenedByFailing].failMax {
		t.Errorf("the next one at %v, now it is %v", at, d.now)
	}
	if p, v := d.g.Acquire(d.now, Request{}); v != VerdictProbe || !p.Probe() { // it does not wait behind the others
		t.Errorf("verdict %d, place %v", v, p)
	}
	d.handleSignal(d.g.Release(d.sent(first), d.now+time.Millisecond, AttemptEnd{Status: 200}))
	d.want(SlowStart, OpenedByFailing)
}

// An outage that ended, and its long waits, say nothing about the next one.
func TestEachOutageHasItsOwnWaitOfUnfinishedRequests(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	d.untilOpen()
	cancelAll := func() {
		for ; d.line > 0; d.line-- {
			d.g.CancelWait(d.now, Request{})
		}
	}
	cancelAll()
	d.end(len(d.out)-1, AttemptEnd{Kind: Unsent})
	d.sending()
	d.end(0, AttemptEnd{Status: 200})
	d.want(SlowStart, OpenedByStall)
	for d.g.State().Breaker == SlowStart {
		d.acquire()
		d.end(len(d.out)-1, AttemptEnd{Status: 503})
	}
	d.want(Open, OpenedByFailing)
	cancelAll()
	d.advance(rhythms[OpenedByFailing].failMax)
	d.sending()
}

// Requests that were not sent do not take the place of long polls that are still in flight: the upstream
// is not silent because of them.
func TestRequestsThatAreNotSentAreNotMissing(t *testing.T) {
	for name, end := range map[string]func(d *guardHarness){
		"unfinished, reset": func(d *guardHarness) {
			d.handleSignal(d.g.Release(d.sending(), d.now, AttemptEnd{Kind: Reset}))
		},
		"unsent": func(d *guardHarness) {
			d.acquire()
			d.end(len(d.out)-1, AttemptEnd{Kind: Unsent})
		},
		"unsent, seen in flight": func(d *guardHarness) {
			for range 5 {
				d.acquire()
			}
			d.advance(40 * time.Millisecond)
			d.handleSignal(d.g.Expire(d.now))
			for range 5 {
				d.end(len(d.out)-1, AttemptEnd{Kind: Unsent})
			}
		},
	} {
		d := newGuardHarness(t, Options{})
		d.serve(15*time.Second, 100, 10*time.Millisecond)
		for range 10 {
			d.acquire() // a long poll
		}
		d.advance(100 * time.Millisecond)
		d.acquire()
		d.now += 10 * time.Millisecond
		d.end(len(d.out)-1, AttemptEnd{Status: 200})
		d.advance(100 * time.Millisecond)
		for until := d.now + 5*time.Second; d.now < until; d.advance(50 * time.Millisecond) {
			end(d)
			d.handleSignal(d.g.Expire(d.now))
			if s := d.g.State(); s.Suspect || s.Breaker != Closed {
				t.Fatalf("%s: %+v", name, s)
			}
		}
	}
}

// A response to a request whose client still sends is a response like any other: the upstream is not
// silent.
func TestAResponseToAnUnfinishedRequestEndsASilence(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	p := d.sending()
	d.silent()
	d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Status: 200}))
	d.handleSignal(d.g.Expire(d.now))
	if s := d.g.State(); s.Suspect || s.Breaker != Closed {
		t.Errorf("%+v", s)
	}
}

// Nothing is due for a request that no longer waits.
func TestAfterTheLastWaitNoEventIsDue(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.fail()
	d.advance(time.Second)
	d.sending()
	d.g.Acquire(d.now, Request{Unfinished: true})
	if at := d.g.NextEvent(); at > d.now+rhythms[OpenedByFailing].failMax {
		t.Errorf("the next event is at %v, now it is %v", at, d.now)
	}
	d.g.CancelWait(d.now, Request{Unfinished: true})
	if at := d.g.NextEvent(); at != backoff.Forever {
		t.Errorf("the next event is at %v, and nobody waits", at)
	}
}

// While the breaker is open, incomplete requests that are admitted now and then keep a fixed limit.
func TestUnfinishedRequestsKeepAFixedLimit(t *testing.T) {
	d := newGuardHarness(t, Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 4})
	d.fail()
	admitted := 0
	for range 100 {
		d.advance(100 * time.Millisecond)
		if _, v := d.g.Acquire(d.now, Request{Unfinished: true}); v == VerdictGo {
			admitted++
		} else {
			d.g.CancelWait(d.now, Request{Unfinished: true})
		}
	}
	if admitted != 2 {
		t.Errorf("%d admitted, half of the limit of 4 is 2", admitted)
	}
}
