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
	return d.outage(3*time.Second, after), d
}

// outage is the outage of comesBack. It returns the largest number in flight within so long.
func (d *guardHarness) outage(within time.Duration, after func(i int) time.Duration) (most int) {
	d.t.Helper()
	d.acquire()
	d.end(0, AttemptEnd{Kind: Refused})
	d.want(Open, OpenedByRefused)
	for range 500 {
		d.acquire()
	}
	due := map[Permit]time.Duration{}
	for end, i := d.now+within, 0; d.now < end; d.advance(5 * time.Millisecond) {
		if d.g.State().Breaker == HalfOpen {
			for len(d.dial) > 0 {
				d.endDial(Connected)
			}
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
	return most
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

// Each outage is judged by itself, also if the one before ended without any slowness.
func TestAnUpstreamMayComeBackSlowerAfterTheSecondOutage(t *testing.T) {
	_, d := comesBack(t, func(int) time.Duration { return 10 * time.Millisecond })
	for len(d.out) > 0 {
		d.end(0, AttemptEnd{Status: 200})
	}
	d.advance(5 * time.Second)
	d.want(Closed, OpenedByRefused)
	d.outage(3*time.Second, func(int) time.Duration { return 250 * time.Millisecond })
	if s := d.g.State(); s.MedianLatency < 200*time.Millisecond {
		t.Errorf("%v is taken for usual", s.MedianLatency)
	}
}

// inSlowStart returns a guard whose upstream refused one connection after 15 s of traffic, and accepts
// them again.
func inSlowStart(t *testing.T) *guardHarness {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.refuseOnce(0)
	return d
}

// refuseOnce lets the upstream refuse a connection, queues requests, and lets it accept the probe's.
func (d *guardHarness) refuseOnce(queued int) {
	d.acquire()
	d.end(0, AttemptEnd{Kind: Refused})
	for range queued {
		d.acquire()
	}
	d.advance(50 * time.Millisecond)
	d.endDial(Connected)
}

// Five seconds after an upstream came back, it is not coming back any longer, but busy: requests wait
// for its limit, and no longer for the breaker.
func TestSlowStartEndsAtABusyUpstream(t *testing.T) {
	d := inSlowStart(t)
	for end := d.now + 6*time.Second; d.now < end; d.advance(100 * time.Millisecond) {
		for range len(d.out) {
			d.end(0, AttemptEnd{Status: 200})
		}
		for d.line < 10 {
			d.acquire()
		}
	}
	d.want(Closed, OpenedByRefused)
	if v := d.acquire(); v != VerdictAtLimit {
		t.Errorf("verdict %d", v)
	}
}

// For a second after an outage, slow responses beside a fast one change nothing: what is usual is judged when the window
// reaches its top.
func TestSlowResponsesBesideAFastOneChangeNothing(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 80, 10*time.Millisecond)
	most := d.outage(time.Second, func(i int) time.Duration {
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

// Late responses that come ever farther apart show that the upstream has too much to do, and not that it is slow.
func TestLateResponsesOfABusyUpstreamAreNoSlowness(t *testing.T) {
	for name, tc := range map[string]struct {
		every time.Duration // of the late responses; in doubt one request passed each 100 ms
		slow  bool
	}{"as far apart": {100 * time.Millisecond, true}, "farther": {150 * time.Millisecond, false}} {
		d := newGuardHarness(t, Options{})
		d.serve(15*time.Second, 100, 10*time.Millisecond)
		d.silent()
		d.out = nil // of these nothing is heard
		d.untilOpen()
		d.advance(5 * time.Second)
		for old := len(d.out); old > 0; old-- {
			d.end(0, AttemptEnd{Status: 200})
			for len(d.out) >= old && len(d.out) > 0 {
				d.end(len(d.out)-1, AttemptEnd{Status: 200})
			}
			d.now += tc.every
		}
		if s := d.g.State(); (s.MedianLatency > time.Second) != tc.slow {
			t.Errorf("%s: %v is usual", name, s.MedianLatency)
		}
	}
}

// Requests that fail in slow start make it smaller: the upstream is not yet back for all.
func TestFailuresShrinkASlowStart(t *testing.T) {
	d := inSlowStart(t)
	d.acquire()
	d.end(0, AttemptEnd{Status: 200}) // proven
	before := d.g.State().ConcurrencyLimit
	for range 4 {
		d.acquire()
		d.now += time.Millisecond
		d.end(0, AttemptEnd{Status: 503})
	}
	if s := d.g.State(); s.Breaker != SlowStart || s.ConcurrencyLimit != before-4 {
		t.Errorf("limit %d after 4 failures, %d before: %+v", s.ConcurrencyLimit, before, s)
	}
}

// Until the first response, slow start grows with time. Where responses are known to be quick, it
// grows slowly from five times what was usual: the upstream may have become slower.
func TestWithoutAResponseSlowStartIsSlowAtItsTop(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(30*time.Second, 25, 800*time.Millisecond)
	d.refuseOnce(500)
	d.advance(750 * time.Millisecond)
	if n := len(d.out); n < 80 || n > 200 {
		t.Errorf("%d sent, want about five times twenty", n)
	}
	d.advance(2 * time.Second)
	if n := len(d.out); n < 280 || n > 400 {
		t.Errorf("%d sent after 3 s without a response, want as many again in each second", n)
	}
}

// A slow start can end without a response. Later responses then show nothing about the recovery.
func TestAfterSlowStartSlowResponsesAreNoRecovery(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	d.acquire()
	d.end(0, AttemptEnd{Kind: Refused})
	d.advance(50 * time.Millisecond)
	d.endDial(Connected)
	d.want(SlowStart, OpenedByRefused)
	d.advance(2 * time.Second)
	d.want(Closed, OpenedByRefused)
	d.serve(10*time.Minute, 100, 10*time.Millisecond)
	d.acquire()
	d.end(0, AttemptEnd{Status: 503})
	for range 3 {
		d.acquire()
		d.now += 120 * time.Millisecond
		d.end(0, AttemptEnd{Status: 200})
	}
	about(t, "usual", d.g.State().MedianLatency, 10*time.Millisecond)
}

// Failures from before an outage ended are no evidence that it has not.
func TestOneFailureAfterAnOutageDoesNotOpenTheBreakerAgain(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.fail()
	d.advance(rhythms[OpenedByFailing].fail)
	d.acquire()
	d.end(0, AttemptEnd{Status: 200})
	d.want(SlowStart, OpenedByFailing)
	d.acquire()
	d.end(0, AttemptEnd{Status: 503})
	d.want(SlowStart, OpenedByFailing)
}

// Once there is a response, a slow start grows with responses, no longer with time.
func TestAResponseEndsTheGrowthOfASlowStartWithTime(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(30*time.Second, 25, 800*time.Millisecond)
	d.refuseOnce(500)
	d.advance(blindEvery)
	d.end(0, AttemptEnd{Status: 200})
	before := d.g.State().ConcurrencyLimit
	d.advance(3 * blindEvery)
	if s := d.g.State(); s.Breaker != SlowStart || s.ConcurrencyLimit != before {
		t.Errorf("limit %d, %d at the response: %+v", s.ConcurrencyLimit, before, s)
	}
}

// After an accepted connection a response may take long: a client that does not wait for it ends nothing. A reset does.
func TestWhatEndsASlowStartBeforeTheFirstResponse(t *testing.T) {
	for kind, ends := range map[EndKind]bool{TimedOut: false, Abandoned: false, Reset: true} {
		d := inSlowStart(t)
		d.acquire()
		d.now += 500 * time.Millisecond
		if kind == Reset {
			d.end(0, AttemptEnd{Kind: kind})
		} else {
			_, s := d.g.Abandon(d.out[0], d.now, AttemptEnd{Kind: kind, Closed: true})
			d.handleSignal(s)
		}
		if s := d.g.State(); (s.Breaker != SlowStart) != ends {
			t.Errorf("end %d: %v", kind, s.Breaker)
		}
	}
}

// A request whose time in the queue ends while the window grows is sent: nothing shows that the upstream
// would not answer it.
func TestASlowStartRefusesNobody(t *testing.T) {
	d := inSlowStart(t)
	for range 20 {
		d.acquire()
	}
	if d.line == 0 {
		t.Fatal("nobody waits")
	}
	d.g.CancelWait(d.now, Request{Key: 7})
	if _, ok := d.g.TakeLast(d.now, Request{Key: 7}); !ok {
		t.Error("refused although nothing failed since connections are accepted")
	}
}
