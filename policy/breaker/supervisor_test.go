package breaker

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// steps records what a strategy was asked, and waits for a second more each time.
type steps []backoff.Step

func (s *steps) Wait(step backoff.Step, _ backoff.Rand) time.Duration {
	*s = append(*s, step)
	return time.Duration(len(*s)) * time.Second
}

func failing(status int) AttemptEnd { return AttemptEnd{Kind: Responded, Status: status} }

// A number of failures in a row opens the breaker, whatever they are and whatever URL has them.
func TestTheBreakerOpensAfterSoManyFailuresInARow(t *testing.T) {
	for name, end := range map[string]AttemptEnd{
		"status": failing(500), "refused": {Kind: Refused}, "reset": {Kind: Reset}, "timeout": {Kind: TimedOut},
	} {
		for _, after := range []int{1, 3} {
			d := newGuardHarness(t, Options{After: after, On: NewFailures([]EndKind{Refused, Reset, TimedOut}, 500)})
			for range 40 {
				d.acquire()
				d.end(0, AttemptEnd{Kind: Responded, Status: 200, Key: 3})
			}
			for i := range 2*after - 1 { // the first row is one short, and a good response ends it
				if g := d.g.State(); g.Breaker != Closed {
					t.Fatalf("%s, after %d: %+v after %d failures", name, after, g.Breaker, i)
				}
				d.acquire()
				if i == after-1 {
					d.end(0, AttemptEnd{Kind: Responded, Status: 200, Key: 3})
					d.acquire()
				}
				d.end(0, end)
			}
			if g := d.g.State(); g.Breaker == Closed || g.Breaker == SlowStart {
				t.Errorf("%s, after %d: %v", name, after, g.Breaker)
			}
		}
	}
}

// What is not in the set is no failure.
func TestWhatIsNotListedIsNoFailure(t *testing.T) {
	on := NewFailures([]EndKind{Reset}, 500)
	for _, end := range []AttemptEnd{failing(503), failing(404), {Kind: Refused}, {Kind: DialFailed}, {Kind: TimedOut}} {
		d := newGuardHarness(t, Options{After: 1, On: on})
		d.acquire()
		d.end(0, end)
		if g := d.g.State(); g.Breaker != Closed {
			t.Errorf("%+v: %v", end, g.Breaker)
		}
	}
	for _, end := range []AttemptEnd{failing(500), {Kind: Reset}} {
		d := newGuardHarness(t, Options{After: 1, On: on})
		d.acquire()
		d.end(0, end)
		if g := d.g.State(); g.Breaker == Closed {
			t.Errorf("%+v: %v", end, g.Breaker)
		}
	}
}

// A failed health check is a failure whatever the set.
func TestAFailedHealthCheckNeverClosesTheBreaker(t *testing.T) {
	d := newGuardHarness(t, Options{After: 1, On: NewFailures(nil, 500), ActiveProbe: true})
	d.acquire()
	d.end(0, failing(500))
	d.now = d.g.NextEvent()
	d.g.Expire(d.now)
	p, due := d.g.Probe(d.now)
	_, e := ClassifyProbe(failing(503))
	d.handleSignal(d.g.Release(p, d.now, e))
	if g := d.g.State(); !due || g.Breaker != Open {
		t.Errorf("due %v, %v", due, g.Breaker)
	}
}

// A strategy gets the number of failed probes, the wait before, and the time since the outage
// began; a success begins anew.
func TestTheWaitsBetweenProbesAreAStrategys(t *testing.T) {
	asked := &steps{}
	d := newGuardHarness(t, Options{After: 1, On: NewFailures(nil, 500), Backoff: asked})
	for round := range 2 {
		d.acquire()
		d.end(0, failing(500))
		began, wait := d.now, time.Duration(0)
		for i := range 4 {
			got := (*asked)[len(*asked)-1]
			if want := (backoff.Step{Retry: i, Previous: wait, Elapsed: d.now - began}); got != want {
				t.Fatalf("round %d: asked for %+v, want %+v", round, got, want)
			}
			wait = time.Duration(len(*asked)) * time.Second
			probe := d.now + wait
			if _, v := d.g.Acquire(d.now, Request{}); v != VerdictBreakerOpen {
				t.Fatalf("round %d: verdict %v in a wait", round, v)
			}
			d.g.CancelWait(d.now, Request{})
			if d.now = d.g.NextEvent(); d.now != probe {
				t.Fatalf("round %d: the next event is at %v, want %v", round, d.now, probe)
			}
			d.g.Expire(d.now)
			if v := d.acquire(); v != VerdictProbe {
				t.Fatalf("round %d: verdict %v after the wait", round, v)
			}
			if i < 3 {
				d.end(0, failing(500))
			}
		}
		d.end(0, failing(200))
		if g := d.g.State(); g.Resets != uint64(round+1) {
			t.Errorf("round %d: %d resets", round, g.Resets)
		}
	}
}

// With After no URL passes before others, not even from the queue.
func TestWithAfterTheQueueKeepsItsOrder(t *testing.T) {
	d := newGuardHarness(t, Options{After: 1, On: NewFailures(nil, 500)})
	d.acquire()
	d.end(0, AttemptEnd{Kind: Responded, Status: 200, Key: 5})
	d.acquire()
	d.end(0, AttemptEnd{Kind: Responded, Status: 500, Key: 7})
	if _, v := d.g.Acquire(d.now, Request{Key: 5}); v != VerdictBreakerOpen {
		t.Errorf("verdict %v for a URL that was answered lately, want it to wait", v)
	}
	d.g.CancelWait(d.now, Request{Key: 5})
	for _, key := range []uint32{5, 8} { // 8 is the newest, and first in the queue
		d.g.Acquire(d.now, Request{Key: key})
		d.line, d.keys = d.line+1, append(d.keys, key)
	}
	for end := d.now + time.Second; d.now < end && len(d.keys) == 2; {
		d.advance(10 * time.Millisecond)
	}
	if len(d.keys) != 1 || d.keys[0] != 5 {
		t.Errorf("%v wait, want 5", d.keys)
	}
}

// Good responses from before a row of failures do not end it, and a 500 that is no failure is not one of it.
func TestWhatARowOfFailuresIs(t *testing.T) {
	for name, tc := range map[string]struct {
		statuses []int
		opens    bool
	}{"failures": {[]int{503, 503, 503}, true}, "with 500": {[]int{500, 500, 500, 500, 503}, false}} {
		d := newGuardHarness(t, Options{After: 3})
		d.serve(time.Second, 100, 10*time.Millisecond)
		for _, status := range tc.statuses {
			d.acquire()
			d.end(0, AttemptEnd{Status: status})
			d.handleSignal(d.g.Expire(d.now))
		}
		if g := d.g.State(); (g.Breaker != Closed) != tc.opens {
			t.Errorf("three %s: %v", name, g.Breaker)
		}
	}
}

// A client that leaves is no failure in a row, an attempt that timed out is.
func TestWhoLeavesIsNoFailureInARow(t *testing.T) {
	for kind, opens := range map[EndKind]bool{Abandoned: false, TimedOut: true} {
		d := newGuardHarness(t, Options{After: 2})
		d.serve(time.Second, 100, 10*time.Millisecond)
		for range 2 {
			d.acquire()
			d.now += time.Second
			_, s := d.g.Abandon(d.out[0], d.now, AttemptEnd{Kind: kind, Closed: true})
			d.out = nil
			d.handleSignal(s)
		}
		if g := d.g.State(); (g.Breaker != Closed) != opens {
			t.Errorf("end %d: %v", kind, g.Breaker)
		}
	}
}
