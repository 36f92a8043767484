package breaker

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

func TestWhatAProbeTells(t *testing.T) {
	for _, tc := range []struct {
		ending AttemptEnd
		want   ProbeResult
		tells  AttemptEnd
	}{
		{AttemptEnd{Kind: Responded, Status: 200}, ProbeBack, AttemptEnd{Kind: Responded, Status: 200}},
		{AttemptEnd{Kind: Responded, Status: 302}, ProbeBack, AttemptEnd{Kind: Responded, Status: 302}},
		{AttemptEnd{Kind: Responded, Status: 401}, ProbeBack, AttemptEnd{Kind: Responded, Status: 401}},
		{AttemptEnd{Kind: Responded, Status: 404}, ProbeBack, AttemptEnd{Kind: Responded, Status: 404}},
		{AttemptEnd{Kind: Responded, Status: 499}, ProbeBack, AttemptEnd{Kind: Responded, Status: 499}},
		{AttemptEnd{Kind: Responded, Status: 101}, ProbeFailing, AttemptEnd{Kind: Responded, Status: 101, Unhealthy: true}},
		{AttemptEnd{Kind: Responded, Status: 429}, ProbeFailing, AttemptEnd{Kind: Responded, Status: 429, Unhealthy: true}},
		{AttemptEnd{Kind: Responded, Status: 500}, ProbeFailing, AttemptEnd{Kind: Responded, Status: 500, Unhealthy: true}},
		{AttemptEnd{Kind: Responded, Status: 503}, ProbeFailing, AttemptEnd{Kind: Responded, Status: 503, Unhealthy: true}},
		{AttemptEnd{Kind: Reset}, ProbeUnanswered, AttemptEnd{Kind: Reset}},
		{AttemptEnd{Kind: Refused}, ProbeUnreachable, AttemptEnd{Kind: Refused}},
		{AttemptEnd{Kind: DialFailed}, ProbeUnreachable, AttemptEnd{Kind: DialFailed}},
		{AttemptEnd{Kind: Connected}, ProbeUnreachable, AttemptEnd{Kind: Connected}},
		{AttemptEnd{Kind: Unsent}, ProbeUnreachable, AttemptEnd{Kind: DialFailed}}, // otherwise the next probe would not wait
	} {
		if got, tells := ClassifyProbe(tc.ending); got != tc.want || tells != tc.tells {
			t.Errorf("%+v: %v and %+v, want %v and %+v", tc.ending, got, tells, tc.want, tc.tells)
		}
	}
}

// With ActiveProbe every request waits, the probe is an event, and the breaker determines its
// waits.
func TestAnActiveProbeIsLeftToTheUser(t *testing.T) {
	for _, tc := range []struct {
		ending AttemptEnd // of the attempt and of each probe
		most   time.Duration
	}{
		{AttemptEnd{Kind: Refused}, rhythms[OpenedByRefused].failMax},
		{AttemptEnd{Kind: DialFailed}, rhythms[OpenedByDial].failMax},
	} {
		d := newGuardHarness(t, Options{ActiveProbe: true})
		d.acquire()
		d.end(0, tc.ending)
		if v := d.acquire(); v != VerdictBreakerOpen {
			t.Fatalf("%+v: verdict %d while the breaker is open", tc.ending, v)
		}
		last := d.now
		for range 20 {
			d.now = max(d.now, d.g.NextEvent())
			d.handleSignal(d.g.Expire(d.now))
			if v := d.acquire(); v != VerdictBreakerOpen {
				t.Fatalf("%+v: verdict %d while a probe is due", tc.ending, v)
			}
			if at := d.g.NextEvent(); at > d.now {
				t.Fatalf("%+v: a probe is due at %v, the next event is at %v", tc.ending, d.now, at)
			}
			p, due := d.g.Probe(d.now)
			if !due || d.now-last > tc.most || tc.most > 500*time.Millisecond {
				t.Fatalf("%+v: due %v, %v after the last one", tc.ending, due, d.now-last)
			}
			last = d.now
			_, e := ClassifyProbe(tc.ending)
			d.handleSignal(d.g.Release(p, d.now, e))
		}
		d.now = d.g.NextEvent()
		d.g.Expire(d.now)
		p, _ := d.g.Probe(d.now)
		d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Kind: Responded, Status: 204}))
		if s := d.g.State(); s.Breaker != SlowStart && s.Breaker != Closed || len(d.out) == 0 {
			t.Errorf("%+v: after a good probe %+v, %d let in", tc.ending, s, len(d.out))
		}
	}
}

// A stall makes a probe due at once. It hangs. Its late response closes the breaker although
// another probe was sent since.
func TestTheLateResponseOfAHungActiveProbeCounts(t *testing.T) {
	d := newGuardHarness(t, Options{ActiveProbe: true})
	d.serve(3*time.Second, 100, 10*time.Millisecond)
	step := func(t time.Duration) { // not pass, which would stop at a probe that nobody takes
		d.now += t
		d.handleSignal(d.g.Expire(d.now))
	}
	for range 200 {
		d.acquire()
		step(10 * time.Millisecond)
	}
	d.want(HalfOpen, OpenedByStall)
	first, due := d.g.Probe(d.now)
	if !due {
		t.Fatal("no probe is due after a stall")
	}
	for range 60 {
		step(time.Second)
	}
	if _, due := d.g.Probe(d.now); !due {
		t.Fatal("a hung probe is not replaced")
	}
	d.handleSignal(d.g.Release(first, d.now, AttemptEnd{Kind: Responded, Status: 200}))
	if s := d.g.State().Breaker; s != SlowStart && s != Closed {
		t.Errorf("breaker %v after the late response", s)
	}
}

// A probe that got a connection and sends nothing on it ends an outage of any kind. Those who wait are
// admitted soon, although no response comes.
func TestAConnectionEndsTheOutageOfAnActiveProbe(t *testing.T) {
	d := newGuardHarness(t, Options{ActiveProbe: true})
	d.serve(3*time.Second, 100, 10*time.Millisecond)
	for range 200 { // not advance, which would stop at a probe that nobody takes
		d.acquire()
		d.now += 10 * time.Millisecond
		d.handleSignal(d.g.Expire(d.now))
	}
	d.want(HalfOpen, OpenedByStall)
	p, due := d.g.Probe(d.now)
	if !due || d.line == 0 {
		t.Fatalf("due %v, %d wait", due, d.line)
	}
	d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Kind: Connected}))
	d.want(SlowStart, OpenedByStall)
	before := len(d.out)
	d.advance(5 * blindEvery)
	if len(d.out)-before < 5 {
		t.Errorf("%d of %d admitted", len(d.out)-before, d.line)
	}
}

// A client that leaves before its request was sent says nothing about the upstream, even if that
// request was the probe. The next request is the probe at once.
func TestAProbeThatWasNotSentIsFollowedByAnotherAtOnce(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	d.untilOpen()
	before := d.g.State().Probes
	d.acquire() // it waits
	d.end(len(d.out)-1, AttemptEnd{Kind: Unsent})
	d.want(HalfOpen, OpenedByStall)
	if s := d.g.State(); s.Probes != before+1 || !d.out[len(d.out)-1].Probe() {
		t.Errorf("%d probes", s.Probes)
	}
}

// closeProbe ends the newest permit, a probe, as the end of its client does whose body was on its way.
// It returns after what time the next probe is sent.
func (d *guardHarness) closeProbe() time.Duration {
	d.t.Helper()
	p := d.out[len(d.out)-1]
	if !p.Probe() || !d.g.ProbePending(p) {
		d.t.Fatal("no probe in flight")
	}
	d.out = d.out[:len(d.out)-1]
	d.acquire() // it waits
	closed, before := d.now, d.g.State().Probes
	d.handleSignal(second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned, Closed: true})))
	for d.g.State().Probes == before {
		d.advance(10 * time.Millisecond)
	}
	return d.now - closed
}

// A stopped server gets few probes, also if the connections of probes are closed because their clients
// leave. It has to work off each of them once it continues.
func TestProbesWhoseConnectionsAreClosedBecomeRare(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	d.untilOpen()
	for k := range 6 {
		d.now += 10 * time.Millisecond
		most := min(time.Second<<k, 5*time.Second)
		if wait := d.closeProbe(); wait < most/2 || wait > most+10*time.Millisecond {
			t.Errorf("%d closed: the next one after %v, want %v to %v", k+1, wait, most/2, most)
		}
	}
}

// A silent upstream that resets the probe's connection may still answer what it got before.
func TestAResetProbeDoesNotEndASilence(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	d.untilOpen()
	d.end(len(d.out)-1, AttemptEnd{Kind: Reset})
	d.want(Open, OpenedByStall)
	d.end(0, AttemptEnd{Status: 200})
	d.want(SlowStart, OpenedByStall)
}

// Only the current probe ends as a failure, or with its connection. One whose client left is still read.
func TestWhatEndsTheCurrentProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		current bool
		end     func(d *guardHarness, p Permit) Signal
		pending bool
	}{
		"a hung one fails": {false, func(d *guardHarness, p Permit) Signal {
			return d.g.Release(p, d.now, AttemptEnd{Status: 503})
		}, true},
		"a hung one is closed": {false, func(d *guardHarness, p Permit) Signal {
			return second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned, Closed: true}))
		}, true},
		"its client leaves": {true, func(d *guardHarness, p Permit) Signal {
			return second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned}))
		}, true},
		"it fails": {true, func(d *guardHarness, p Permit) Signal {
			return d.g.Release(p, d.now, AttemptEnd{Status: 503})
		}, false},
	} {
		d := newGuardHarness(t, Options{})
		for range many {
			d.acquire()
			d.end(0, AttemptEnd{Status: 503})
		}
		d.acquire()
		d.acquire()
		for len(d.out) < 2 {
			d.advance(10 * time.Millisecond)
		}
		p := d.out[0]
		if tc.current {
			p = d.out[1]
		}
		d.handleSignal(tc.end(d, p))
		if got := d.g.ProbePending(d.out[1]); got != tc.pending {
			t.Errorf("%s: the current one is pending: %v", name, got)
		}
	}
}

// How long a probe hangs before another one follows: a minute if no client waits for it, seconds if a
// backoff sets the pace, else a moment.
func TestHowLongAProbeHangs(t *testing.T) {
	for name, tc := range map[string]struct {
		o           Options
		least, most time.Duration
	}{
		"a request":     {Options{After: 1}, 125 * time.Millisecond, 250 * time.Millisecond},
		"the proxy's":   {Options{After: 1, ActiveProbe: true}, 30 * time.Second, time.Minute},
		"by a backoff":  {Options{After: 1, Backoff: noWait{}}, 2500 * time.Millisecond, 5 * time.Second},
		"by a long one": {Options{After: 1, Backoff: backoff.Fixed{Base: 20 * time.Second}}, 2500 * time.Millisecond, 5 * time.Second},
	} {
		d := newGuardHarness(t, tc.o)
		d.acquire()
		d.end(0, AttemptEnd{Status: 503})
		if at := d.g.NextEvent(); at <= d.now {
			t.Errorf("%s: no wait before the first probe", name)
		}
		d.now = d.g.NextEvent()
		d.g.Expire(d.now)
		if _, due := d.g.Probe(d.now); due != tc.o.ActiveProbe {
			t.Fatalf("%s: due %v", name, due)
		}
		if v := d.acquire(); (v == VerdictProbe) == tc.o.ActiveProbe {
			t.Fatalf("%s: verdict %d", name, v)
		}
		if hangs := d.g.NextEvent() - d.now; hangs < tc.least || hangs > tc.most {
			t.Errorf("%s: %v, want %v to %v", name, hangs, tc.least, tc.most)
		}
	}
}

// noWait is a backoff without waits.
type noWait struct{}

func (noWait) Wait(backoff.Step, backoff.Rand) time.Duration { return 0 }
