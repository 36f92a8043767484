package policy

import (
	"testing"
	"time"
)

// comesBack lets an upstream that took 10 ms refuse, come back, and answer the
// first requests after some times; 500 wait. It gives the most that were under
// way at once within 3 s.
func comesBack(t *testing.T, after func(i int) time.Duration) (most int, d *desk) {
	t.Helper()
	d = newDesk(t, GuardOptions{})
	d.serve(15*time.Second, 80, 10*time.Millisecond)
	d.ask()
	d.end(0, Ending{Kind: Refused})
	d.want(GateClosed, ClosedByRefused)
	for range 500 {
		d.ask()
	}
	due := map[Place]time.Duration{}
	for end, i := d.now+3*time.Second, 0; d.now < end; d.pass(5 * time.Millisecond) {
		if len(d.out) > 0 && d.g.State().Gate == GateHalfOpen {
			d.heed(d.g.Accepted(d.now))
		}
		for _, p := range d.out {
			if due[p] == 0 {
				due[p] = d.now + after(i)
				i++
			}
		}
		most = max(most, len(d.out))
		for j := len(d.out) - 1; j >= 0; j-- {
			if due[d.out[j]] <= d.now {
				d.end(j, Ending{Status: 200})
			}
		}
	}
	return most, d
}

func TestAnUpstreamThatComesBackSlowerGetsMoreAtOnce(t *testing.T) {
	most, d := comesBack(t, func(int) time.Duration { return 250 * time.Millisecond })
	if most < 50 {
		t.Errorf("%d at once, where each takes 250 ms and any number is borne", most)
	}
	if s := d.g.State(); s.Usual < 200*time.Millisecond {
		t.Errorf("%v is taken for usual", s.Usual)
	}
}

// One quick answer among the first says that the upstream is as it was.
func TestSlowAnswersBesideAQuickOneChangeNothing(t *testing.T) {
	most, d := comesBack(t, func(i int) time.Duration {
		if i == 1 {
			return 10 * time.Millisecond
		}
		return 250 * time.Millisecond
	})
	if most > 8 {
		t.Errorf("%d at once, where three was the most to begin with", most)
	}
	if s := d.g.State(); s.Usual > 50*time.Millisecond {
		t.Errorf("%v is taken for usual", s.Usual)
	}
}

// What was sent before the upstream fell silent waited it out.
func TestLateAnswersSayNothingOfSlowness(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	for d.g.State().Gate == GateOpen && d.now < 30*time.Second {
		d.ask()
		d.pass(10 * time.Millisecond)
	}
	d.want(GateHalfOpen, ClosedByStall)
	d.pass(5 * time.Second)
	for len(d.out) > 0 {
		d.end(0, Ending{Status: 200})
	}
	if s := d.g.State(); s.Usual > 50*time.Millisecond {
		t.Errorf("%v is taken for usual", s.Usual)
	}
}
