package breaker

import (
	"testing"
	"time"
)

// Some connections of a Service's address are refused or find no route, as one of
// its pods is gone; others are accepted, or what was sent since is answered.
func TestRefusedConnectionsBesideAcceptedOnesCloseNothing(t *testing.T) {
	for _, kind := range []EndKind{Refused, DialFailed} {
		for name, alive := range map[string]func(d *guardHarness){
			"accepted": func(d *guardHarness) { d.handleSignal(d.g.Accepted(d.now)) },
			"answered": func(d *guardHarness) { d.acquire(); d.end(len(d.out)-1, AttemptEnd{Status: 200}) },
		} {
			d := newGuardHarness(t, Options{})
			d.serve(5*time.Second, 50, 10*time.Millisecond)
			for range 100 {
				d.acquire()
				d.now += time.Millisecond
				d.g.DialRetried(d.now)
				alive(d)
				d.now += 20 * time.Millisecond
				d.end(0, AttemptEnd{Kind: kind})
				for range 3 { // the others go well
					d.acquire()
					d.end(0, AttemptEnd{Status: 200})
				}
			}
			if d.g.State().Breaker != Closed {
				t.Errorf("kind %d, others are %s: the breaker is %v", kind, name, d.g.State().Breaker)
			}
		}
	}
}

// Of an upstream that shuts down, what it still answers was sent before.
func TestResponsesToEarlierRequestsDoNotCountWhileConnectionsAreRefused(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(5*time.Second, 50, 10*time.Millisecond)
	d.acquire()
	d.now += 5 * time.Millisecond
	d.acquire()
	d.now += time.Millisecond
	d.g.DialRetried(d.now)
	d.now += time.Millisecond
	d.end(0, AttemptEnd{Status: 200})
	d.end(0, AttemptEnd{Kind: Refused})
	d.want(Open, OpenedByRefused)
}

// Nearly all pods are gone: judged by share, as other failures are.
func TestRefusedConnectionsAreJudgedByShareBesideFewAcceptedOnes(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range evidenceVolume {
		d.acquire()
		d.now += time.Millisecond
		d.handleSignal(d.g.Accepted(d.now))
		d.now += time.Millisecond
		d.end(0, AttemptEnd{Kind: Refused})
	}
	d.want(Open, OpenedByRefused)
}

// Twenty wait, and one response takes twelve seconds: after half a second of refused
// connections all are sent within half a second of the first accepted one.
func TestRecoveryDoesNotWaitAsLongAsOneResponseTakes(t *testing.T) {
	for name, before := range map[string]func(d *guardHarness){
		"known to be slow": func(d *guardHarness) {
			for range 5 {
				d.acquire()
				d.advance(12 * time.Second)
				d.end(0, AttemptEnd{Status: 200})
			}
		},
		"not known": func(*guardHarness) {},
	} {
		d := newGuardHarness(t, Options{})
		before(d)
		d.acquire()
		d.end(0, AttemptEnd{Kind: Refused})
		for range 20 {
			d.acquire()
		}
		for end := d.now + 500*time.Millisecond; d.now < end; d.advance(time.Millisecond) {
			for len(d.out) > 0 {
				d.end(0, AttemptEnd{Kind: Refused})
				d.acquire()
			}
		}
		for len(d.out) == 0 {
			d.advance(time.Millisecond)
		}
		d.handleSignal(d.g.Accepted(d.now))
		d.advance(5 * blindGrowthInterval) // 1 is doubled five times
		if len(d.out) != 20 {
			t.Errorf("%s: %d of 20 sent, %d wait", name, len(d.out), d.line)
		}
		d.want(SlowStart, OpenedByRefused)
	}
}

// The probe goes to one pod of several. One that neither accepts nor refuses does
// not decide, and the connection of any closes the breaker.
func TestAProbeThatFindsNoWordIsNotTheOnlyOne(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.acquire()
	d.end(0, AttemptEnd{Kind: DialFailed})
	d.advance(100 * time.Millisecond)
	first, ok := d.g.Probe(d.now)
	if !ok {
		t.Fatal("no probe is due")
	}
	d.advance(connectFirst)
	if _, ok := d.g.Probe(d.now); !ok {
		t.Fatal("no other probe beside the one that hangs")
	}
	d.handleSignal(d.g.Release(first, d.now, AttemptEnd{Kind: Connected}))
	d.want(SlowStart, OpenedByDial)
}

// Statuses were failures; the next request is not refused at once, but takes twelve
// seconds. Others follow it, and the first good response closes the breaker.
func TestSeveralProbesWhereAResponseTakesLong(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range evidenceVolume {
		d.acquire()
		d.end(0, AttemptEnd{Status: 503})
	}
	d.want(Open, OpenedByFailing)
	for range 20 {
		d.acquire()
	}
	d.advance(5 * time.Second)
	if n := len(d.out); n < 8 || n > 20 {
		t.Errorf("%d probes in five seconds without a word", n)
	}
	d.end(3, AttemptEnd{Status: 200})
	d.want(SlowStart, OpenedByFailing)
}

// Attempts that ran into their timeout are silence, whatever their share.
func TestTimeoutsCloseAsSilence(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range evidenceVolume {
		d.acquire()
		d.end(0, AttemptEnd{Kind: TimedOut})
	}
	d.want(HalfOpen, OpenedByStall)
}
