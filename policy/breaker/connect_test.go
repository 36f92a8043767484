package breaker

import (
	"testing"
	"time"
)

// Some connections to a Service's address are refused or find no route, because one of its pods is
// gone. Others are accepted, or later requests are answered.
func TestRefusedConnectionsBesideAcceptedOnesCloseNothing(t *testing.T) {
	for _, kind := range []EndKind{Refused, DialFailed} {
		for name, alive := range map[string]func(d *guardHarness){
			"accepted": func(d *guardHarness) { d.g.Accepted(d.now) },
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
				for range 3 { // the others succeed
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

// While an upstream shuts down, it only answers requests that were sent before.
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

// If nearly all pods are gone, the share of failures decides, as for other failures.
func TestRefusedConnectionsAreJudgedByShareBesideFewAcceptedOnes(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range many {
		d.acquire()
		d.now += time.Millisecond
		d.g.Accepted(d.now)
		d.now += time.Millisecond
		d.end(0, AttemptEnd{Kind: Refused})
	}
	d.want(Open, OpenedByRefused)
}

// Twenty requests wait, and one response takes twelve seconds. After half a second of refused
// connections, all are sent within half a second of the first accepted one.
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
			for len(d.dial) > 0 {
				d.endDial(Refused)
			}
		}
		for len(d.dial) == 0 {
			d.advance(time.Millisecond)
		}
		d.endDial(Connected)
		d.advance(5 * blindEvery) // 1 doubles five times
		if len(d.out) != 20 {
			t.Errorf("%s: %d of 20 sent, %d wait", name, len(d.out), d.line)
		}
		d.want(SlowStart, OpenedByRefused)
	}
}

// The probe goes to one pod of several. If that pod neither accepts nor refuses, another probe
// follows, and a connection to any pod closes the breaker.
func TestAProbeThatFindsNoWordIsNotTheOnlyOne(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.acquire()
	d.end(0, AttemptEnd{Kind: DialFailed})
	d.advance(100 * time.Millisecond)
	if len(d.dial) != 1 {
		t.Fatal("no probe is due")
	}
	d.advance(rhythms[OpenedByDial].hang)
	if len(d.dial) < 2 {
		t.Fatal("no other probe beside the one that hangs")
	}
	d.endDial(Connected)
	d.want(SlowStart, OpenedByDial)
}

// Statuses were failures. The next request is not rejected at once, but takes twelve seconds.
// Others follow it, and the first good response closes the breaker.
func TestSeveralProbesWhereAResponseTakesLong(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.fail()
	d.want(Open, OpenedByFailing)
	for range 20 {
		d.acquire()
	}
	d.advance(5 * time.Second)
	if n := len(d.out); n < 4 || n > 8 {
		t.Errorf("%d probes in five seconds without a word", n)
	}
	d.end(3, AttemptEnd{Status: 200})
	d.want(SlowStart, OpenedByFailing)
}

// Attempts that reached their timeout count as silence, whatever their share.
func TestTimeoutsCloseAsSilence(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range many {
		d.acquire()
		d.end(0, AttemptEnd{Kind: TimedOut})
	}
	d.want(HalfOpen, OpenedByStall)
}

// A connection may fail slowly, for example because the upstream's queue of connections is full, while
// requests on others are answered all the time.
func TestASlowDialBesideConnectionsThatWorkOpensNothing(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(5*time.Second, 50, 10*time.Millisecond)
	d.acquire()
	d.serve(3*time.Second, 50, 10*time.Millisecond)
	d.end(0, AttemptEnd{Kind: DialFailed})
	d.want(Closed, OpenedByNothing)
}

// A failing upstream was restarted and refuses connections. Then the first one that it accepts is its
// recovery, however long a response takes.
func TestTheLastEvidenceIsWhatClosesTheBreaker(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.fail()
	d.advance(rhythms[OpenedByFailing].fail)
	d.acquire()
	d.end(0, AttemptEnd{Kind: Refused})
	d.want(Open, OpenedByRefused)
	d.advance(rhythms[OpenedByFailing].failMax)
	d.endDial(Connected)
	d.want(SlowStart, OpenedByRefused)
}

// A connection that is accepted may be closed at once. It ends no outage before its probe reports that the
// upstream keeps it.
func TestAnAcceptedConnectionAloneEndsNoOutage(t *testing.T) {
	for _, end := range []AttemptEnd{{Status: 503}, {Kind: Refused}} {
		d := newGuardHarness(t, Options{})
		for d.g.State().Breaker == Closed {
			d.acquire()
			d.end(0, end)
		}
		d.g.Accepted(d.now)
		if s := d.g.State(); s.Breaker != Open {
			t.Errorf("%+v: %v", end, s.Breaker)
		}
	}
}

// After a lost connection, new ones end too although nothing is sent on them. That is an outage like refused
// connections, unless the upstream holds another connection or responds, or the settings say otherwise.
func TestWhatAcceptsAndClosesIsDown(t *testing.T) {
	for name, tc := range map[string]struct {
		options   Options
		check     EndKind
		before    func(d *guardHarness) // after requests were sent, before the first is lost
		meanwhile func(d *guardHarness)
		want      State
		noCheck   bool
	}{
		"closed at once":       {check: Dropped, want: Open},
		"refused":              {check: Refused, want: Open},
		"accepted meanwhile":   {check: Dropped, meanwhile: func(d *guardHarness) { d.g.Accepted(d.now) }, want: Open},
		"refused and accepted": {check: Refused, meanwhile: func(d *guardHarness) { d.g.Accepted(d.now) }, want: Closed},
		"kept":                 {check: Connected, want: Closed},
		"an older one lives":   {check: Dropped, before: func(d *guardHarness) { d.acquire() }, want: Closed},
		"a younger one lives":  {check: Dropped, meanwhile: func(d *guardHarness) { d.acquire() }, want: Open},
		"another is answered": {check: Dropped, before: func(d *guardHarness) { d.acquire() }, meanwhile: func(d *guardHarness) {
			d.end(0, AttemptEnd{Status: 200})
		}, want: Closed},
		"no breaker":      {options: Options{NoBreaker: true}, noCheck: true},
		"failures in row": {options: Options{After: 5}, noCheck: true},
		"not evidence":    {options: Options{On: NewFailures([]EndKind{Reset}, 503)}, noCheck: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newGuardHarness(t, tc.options)
			d.serve(5*time.Second, 50, 10*time.Millisecond)
			d.acquire()
			if tc.before != nil {
				tc.before(d)
			}
			d.end(0, AttemptEnd{Kind: Reset})
			d.advance(0)
			if tc.noCheck {
				if len(d.dial) > 0 {
					t.Fatal("a check")
				}
				return
			}
			if len(d.dial) != 1 || !d.dial[0].Check() {
				t.Fatalf("%d checks", len(d.dial))
			}
			d.advance(time.Millisecond)
			if tc.meanwhile != nil {
				tc.meanwhile(d)
			}
			d.advance(time.Millisecond)
			inFlight := d.g.State().InFlight
			d.endDial(tc.check)
			if s := d.g.State(); s.Breaker != tc.want || s.InFlight != inFlight || s.Probes != 0 {
				t.Fatalf("%+v", s)
			}
			if tc.want == Open {
				d.want(Open, OpenedByRefused)
				d.advance(rhythms[OpenedByRefused].failMax)
				d.endDial(Dropped)
				d.want(Open, OpenedByRefused)
				d.advance(rhythms[OpenedByRefused].failMax)
				d.endDial(Connected)
				d.want(SlowStart, OpenedByRefused)
			}
		})
	}
}

// One check at a time is made. After it, another lost connection has another.
func TestOneCheckAtATime(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(5*time.Second, 50, 10*time.Millisecond)
	for range 4 {
		d.acquire()
	}
	d.end(0, AttemptEnd{Kind: Reset})
	d.end(0, AttemptEnd{Kind: Reset})
	d.advance(0)
	d.end(0, AttemptEnd{Kind: Reset})
	d.advance(0)
	if len(d.dial) != 1 {
		t.Fatalf("%d checks", len(d.dial))
	}
	d.endDial(Connected)
	d.end(0, AttemptEnd{Kind: Reset})
	d.advance(0)
	if len(d.dial) != 1 {
		t.Fatalf("%d checks after the first", len(d.dial))
	}
	for d.g.State().Breaker == Closed { // the breaker opens by other evidence
		d.acquire()
		d.advance(20 * time.Millisecond)
		d.end(0, AttemptEnd{Status: 503})
	}
	d.want(Open, OpenedByFailing)
	d.endDial(Refused)
	d.want(Open, OpenedByFailing)
}

// A server closes the connections that exceed its limit. If so many are lost that the breaker opens, a connection
// that the server keeps closes it, and not a request, which would be lost on a further one.
func TestLostConnectionsAreProbedByConnections(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(5*time.Second, 50, 10*time.Millisecond)
	for d.g.State().Breaker == Closed {
		d.acquire()
		d.advance(10 * time.Millisecond)
		d.end(0, AttemptEnd{Kind: Reset})
		for len(d.dial) > 0 {
			d.endDial(Connected)
		}
	}
	d.want(HalfOpen, OpenedByLost)
	for lost := range 2 { // requests, in slow start
		d.acquire()
		if len(d.out) > 0 {
			t.Fatal("a request is the probe")
		}
		for len(d.dial) == 0 {
			d.advance(time.Millisecond)
		}
		d.endDial(Connected)
		d.want(SlowStart, OpenedByLost)
		if lost == 0 {
			d.end(0, AttemptEnd{Kind: Reset})
			d.want(Open, OpenedByLost)
		}
	}
	d.end(0, AttemptEnd{Status: 200})
	d.want(SlowStart, OpenedByLost)
}
