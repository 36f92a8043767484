package policy

import (
	"testing"
	"time"
)

// Some connections of a Service's address are refused or find no route, as one of
// its pods is gone; others are accepted, or what was sent since is answered.
func TestRefusedConnectionsBesideAcceptedOnesCloseNothing(t *testing.T) {
	for _, kind := range []EndKind{Refused, DialFailed} {
		for name, alive := range map[string]func(d *desk){
			"accepted": func(d *desk) { d.heed(d.g.Accepted(d.now)) },
			"answered": func(d *desk) { d.ask(); d.end(len(d.out)-1, Ending{Status: 200}) },
		} {
			d := newDesk(t, GuardOptions{})
			d.serve(5*time.Second, 50, 10*time.Millisecond)
			for range 100 {
				d.ask()
				d.now += time.Millisecond
				d.g.DialsAgain(d.now)
				alive(d)
				d.now += 20 * time.Millisecond
				d.end(0, Ending{Kind: kind})
				for range 3 { // the others go well
					d.ask()
					d.end(0, Ending{Status: 200})
				}
			}
			if d.g.State().Gate != GateOpen {
				t.Errorf("kind %d, others are %s: the gate is %v", kind, name, d.g.State().Gate)
			}
		}
	}
}

// Of an upstream that shuts down, what it still answers was sent before.
func TestAnswersToEarlierRequestsDoNotSpeakForWhatRefuses(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.serve(5*time.Second, 50, 10*time.Millisecond)
	d.ask()
	d.now += 5 * time.Millisecond
	d.ask()
	d.now += time.Millisecond
	d.g.DialsAgain(d.now)
	d.now += time.Millisecond
	d.end(0, Ending{Status: 200})
	d.end(0, Ending{Kind: Refused})
	d.want(GateClosed, ClosedByRefused)
}

// Nearly all pods are gone: judged by share, as other failures are.
func TestRefusedConnectionsAreJudgedByShareBesideFewAcceptedOnes(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	for range evidenceVolume {
		d.ask()
		d.now += time.Millisecond
		d.heed(d.g.Accepted(d.now))
		d.now += time.Millisecond
		d.end(0, Ending{Kind: Refused})
	}
	d.want(GateClosed, ClosedByRefused)
}

// Twenty wait, and one answer takes twelve seconds: after half a second of refused
// connections all are sent within half a second of the first accepted one.
func TestRecoveryDoesNotWaitAsLongAsOneResponseTakes(t *testing.T) {
	for name, before := range map[string]func(d *desk){
		"known to be slow": func(d *desk) {
			for range 5 {
				d.ask()
				d.pass(12 * time.Second)
				d.end(0, Ending{Status: 200})
			}
		},
		"not known": func(*desk) {},
	} {
		d := newDesk(t, GuardOptions{})
		before(d)
		d.ask()
		d.end(0, Ending{Kind: Refused})
		for range 20 {
			d.ask()
		}
		for end := d.now + 500*time.Millisecond; d.now < end; d.pass(time.Millisecond) {
			for len(d.out) > 0 {
				d.end(0, Ending{Kind: Refused})
				d.ask()
			}
		}
		for len(d.out) == 0 {
			d.pass(time.Millisecond)
		}
		d.heed(d.g.Accepted(d.now))
		d.pass(5 * untoldStep) // 1 is doubled five times
		if len(d.out) != 20 {
			t.Errorf("%s: %d of 20 sent, %d wait", name, len(d.out), d.line)
		}
		d.want(GateRamp, ClosedByRefused)
	}
}

// The probe goes to one pod of several. One that neither accepts nor refuses does
// not decide, and the connection of any opens the gate.
func TestAProbeThatFindsNoWordIsNotTheOnlyOne(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.ask()
	d.end(0, Ending{Kind: DialFailed})
	d.pass(100 * time.Millisecond)
	first, ok := d.g.Probe(d.now)
	if !ok {
		t.Fatal("no probe is due")
	}
	d.pass(connectFirst)
	if _, ok := d.g.Probe(d.now); !ok {
		t.Fatal("no other probe beside the one that hangs")
	}
	d.heed(d.g.Leave(first, d.now, Ending{Kind: Connected}))
	d.want(GateRamp, ClosedByDial)
}

// Statuses were failures; the next request is not refused at once, but takes twelve
// seconds. Others follow it, and the first good answer opens the gate.
func TestSeveralProbesWhereAnAnswerTakesLong(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	for range evidenceVolume {
		d.ask()
		d.end(0, Ending{Status: 503})
	}
	d.want(GateClosed, ClosedByFailing)
	for range 20 {
		d.ask()
	}
	d.pass(5 * time.Second)
	if n := len(d.out); n < 8 || n > 20 {
		t.Errorf("%d probes in five seconds without a word", n)
	}
	d.end(3, Ending{Status: 200})
	d.want(GateRamp, ClosedByFailing)
}

// Attempts that ran into their timeout are silence, whatever their share.
func TestTimeoutsCloseAsSilence(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	for range evidenceVolume {
		d.ask()
		d.end(0, Ending{Kind: TimedOut})
	}
	d.want(GateHalfOpen, ClosedByStall)
}
