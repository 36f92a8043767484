package breaker

import (
	"testing"
	"time"
)

// comesBack simulates an upstream with a latency of 10 ms that refuses connections and recovers,
// with 500 requests waiting. after returns the latencies of the first requests. It returns the
// largest number in flight within 3 s.
func comesBack(t *testing.T, after func(i int) time.Duration) (most int, d *guardHarness) {
	t.Helper()
	d = newGuardHarness(t, Options{})
	d.serve(15*time.Second, 80, 10*time.Millisecond)
	d.acquire()
	d.end(0, AttemptEnd{Kind: Refused})
	d.want(Open, OpenedByRefused)
	for range 500 {
		d.acquire()
	}
	due := map[Permit]time.Duration{}
	for end, i := d.now+3*time.Second, 0; d.now < end; d.advance(5 * time.Millisecond) {
		if d.g.State().Breaker == HalfOpen {
			d.handleSignal(d.g.Accepted(d.now))
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
				d.end(j, AttemptEnd{Status: 200})
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
	if s := d.g.State(); s.MedianLatency < 200*time.Millisecond {
		t.Errorf("%v is taken for usual", s.MedianLatency)
	}
}

// One fast response among the first shows that the upstream is as fast as before.
func TestSlowResponsesBesideAFastOneChangeNothing(t *testing.T) {
	most, d := comesBack(t, func(i int) time.Duration {
		if i == 1 {
			return 10 * time.Millisecond
		}
		return 250 * time.Millisecond
	})
	if most > 8 {
		t.Errorf("%d at once, where three was the most to begin with", most)
	}
	if s := d.g.State(); s.MedianLatency > 50*time.Millisecond {
		t.Errorf("%v is taken for usual", s.MedianLatency)
	}
}

// Requests sent before the upstream fell silent waited out the silence.
func TestLateResponsesAreNoSlowness(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	for d.g.State().Breaker == Closed && d.now < 30*time.Second {
		d.acquire()
		d.advance(10 * time.Millisecond)
	}
	d.want(HalfOpen, OpenedByStall)
	d.advance(5 * time.Second)
	for len(d.out) > 0 {
		d.end(0, AttemptEnd{Status: 200})
	}
	if s := d.g.State(); s.MedianLatency > 50*time.Millisecond {
		t.Errorf("%v is taken for usual", s.MedianLatency)
	}
}
