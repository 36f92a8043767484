package breaker

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// silent sends a hundred requests per second, without a response, until the Guard is suspect.
func (d *guardHarness) silent() {
	d.t.Helper()
	for end := d.now + 3*time.Second; !d.g.State().Suspect; d.advance(10 * ms) {
		if d.now > end {
			d.t.Fatal("no doubt within three seconds of silence")
		}
		d.acquire()
	}
}

// While suspect few requests pass, and the first response admits all. If far more is in flight than ever
// went well, each further response admits one or two instead.
func TestInDoubtOnePassesNowAndThen(t *testing.T) {
	for name, tc := range map[string]struct {
		latency time.Duration
		waits   int // after a response
	}{
		"as many as usual": {100 * ms, 0},
		"far more":         {10 * ms, 45},
	} {
		d := newGuardHarness(t, Options{})
		d.serve(15*time.Second, 100, tc.latency)
		d.silent()
		d.want(Closed, OpenedByNothing)
		sent := len(d.out)
		for range 50 {
			if v := d.acquire(); v != VerdictSuspect {
				t.Fatalf("%s: verdict %d in doubt", name, v)
			}
			d.advance(10 * ms)
		}
		if n := len(d.out) - sent; n < 4 || n > 5 {
			t.Errorf("%s: %d passed in half a second of doubt, want one each 100 ms", name, n)
		}
		d.end(0, AttemptEnd{Status: 200})
		if d.g.State().Suspect || d.line != tc.waits {
			t.Errorf("%s: %d wait after a response", name, d.line)
		}
		for len(d.out) > 0 {
			d.end(0, AttemptEnd{Status: 200})
		}
		if d.line != 0 {
			t.Errorf("%s: %d wait after all responses", name, d.line)
		}
	}
}

// The suspicion ends when the silence has lasted for 1.15 s and for eleven usual latencies.
func TestHowLongASilenceMustLast(t *testing.T) {
	for _, tc := range []struct{ latency, least, most time.Duration }{
		{10 * ms, 1150 * ms, 1250 * ms},
		{100 * ms, 1150 * ms, 1400 * ms}, // latencies are known to an eighth
		{200 * ms, 2200 * ms, 2600 * ms},
		{2 * time.Second, 10 * time.Second, 14 * time.Second}, // the request that was tried has to be overdue,
	} {
		d := newGuardHarness(t, Options{})
		d.serve(15*time.Second, 100, tc.latency)
		began := d.now
		for d.g.State().Breaker == Closed && d.now < began+20*time.Second {
			d.acquire()
			d.advance(10 * ms)
		}
		if took := d.now - began; took < tc.least || took > tc.most {
			t.Errorf("%v: closed after %v, want %v to %v", tc.latency, took, tc.least, tc.most)
		}
		d.want(HalfOpen, OpenedByStall)
	}
}

// Clients know what they wait for: three that left late end the suspicion.
func TestThreeClientsLeavingLateOpenTheBreaker(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*ms)
	d.silent()
	d.advance(100 * ms)
	for i := range 3 {
		d.advance(40 * ms)
		d.acquire()
		if s := d.g.State(); s.Breaker != Closed {
			t.Fatalf("closed after %d had left", i)
		}
		p := d.out[0]
		d.out = d.out[1:]
		d.handleSignal(second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned})))
	}
	d.advance(40 * ms)
	d.acquire()
	d.want(HalfOpen, OpenedByStall)
}

// Without a breaker the limit holds requests back, so they wait for a permit while suspect.
func TestSuspectStateWithoutABreaker(t *testing.T) {
	d := newGuardHarness(t, Options{NoBreaker: true})
	d.serve(15*time.Second, 100, 10*ms)
	d.silent()
	if v := d.acquire(); v != VerdictAtLimit {
		t.Errorf("verdict %d in doubt", v)
	}
	d = newGuardHarness(t, Options{NoBreaker: true, ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 1000})
	d.serve(15*time.Second, 100, 10*ms)
	for range 200 {
		if v := d.acquire(); v != VerdictGo {
			t.Fatalf("verdict %d where nothing may hold back", v)
		}
		d.advance(10 * ms)
	}
}

// A fixed limit also holds while suspect.
func TestSuspectStateKeepsAFixedLimit(t *testing.T) {
	d := newGuardHarness(t, Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 30})
	d.serve(15*time.Second, 100, 10*ms)
	d.silent()
	for range 60 {
		d.acquire()
		d.advance(10 * ms)
	}
	if len(d.out) > 30 {
		t.Errorf("%d in flight", len(d.out))
	}
}

// Queued requests are admitted while suspect, and the breaker opens, by events alone.
func TestWhileSuspectEventsAreEnough(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*ms)
	began := d.now
	d.silent()
	for range 50 {
		d.acquire()
	}
	sent, at := len(d.out), d.now
	d.advance(350 * ms)
	if n := len(d.out) - sent; n != 3 {
		t.Errorf("%d admitted within %v", n, d.now-at)
	}
	d.advance(began + downFrom + 100*ms - d.now)
	d.want(HalfOpen, OpenedByStall)
	if d.g.State().Suspect {
		t.Error("still suspect")
	}
}

// A lost connection is no response.
func TestALossDoesNotEndASuspicion(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*ms)
	d.silent()
	d.end(0, AttemptEnd{Kind: Reset})
	if !d.g.State().Suspect {
		t.Error("no longer suspect")
	}
}

// A silence that ended says nothing about the probe of the next one: whoever comes then is sent at once.
func TestEachSilenceHasItsOwnProbe(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*ms)
	d.silent()
	d.advance(200 * ms)
	d.acquire()
	d.end(len(d.out)-1, AttemptEnd{Status: 200})
	for len(d.out) > 0 {
		d.end(0, AttemptEnd{Status: 200})
	}
	d.advance(answerCounts + time.Second) // no URL is known
	for range 3 {
		d.acquire()
	}
	for end := d.now + 2*time.Second; d.now < end; d.advance(10 * ms) {
		d.call(func() Signal { return d.g.Expire(d.now) })
	}
	d.want(HalfOpen, OpenedByStall)
	if v := d.acquire(); v != VerdictProbe {
		t.Errorf("verdict %d", v)
	}
}
