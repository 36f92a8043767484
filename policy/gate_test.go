package policy

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Every state with everything that can happen in it. What is not listed leaves
// the state as it is.
func TestGateTransitions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	closed := func() gate { g := gate{}; g.close(0, ClosedByRefused, r); return g }
	due := func() gate { g := closed(); g.expire(time.Second); return g }
	probing := func() gate { g := due(); g.begin(time.Second, r); return g }
	ramp := func() gate { g := probing(); g.reopen(time.Second); return g }
	open := func() gate { return gate{} }
	for _, tc := range []struct {
		name string
		from func() gate
		do   func(*gate)
		want GateState
		due  bool
	}{
		{"open is closed by a refusal", open, func(g *gate) { g.close(0, ClosedByRefused, r) }, GateClosed, false},
		{"open is closed by a stall, the probe is due at once", open, func(g *gate) { g.close(0, ClosedByStall, r) }, GateHalfOpen, true},
		{"open stays open when a ramp is said to be over", open, (*gate).opened, GateOpen, false},
		{"open does not expire", open, func(g *gate) { g.expire(time.Hour) }, GateOpen, false},
		{"closed waits", closed, func(g *gate) { g.expire(time.Millisecond) }, GateClosed, false},
		{"closed comes due", closed, func(g *gate) { g.expire(25 * time.Millisecond) }, GateHalfOpen, true},
		{"closed reopens on a late answer", closed, func(g *gate) { g.reopen(0) }, GateRamp, false},
		{"half open: the probe is sent", due, func(g *gate) { g.begin(time.Second, r) }, GateHalfOpen, false},
		{"half open: the probe hangs", probing, func(g *gate) { g.expire(1100 * time.Millisecond) }, GateHalfOpen, false},
		{"half open: a hung probe is replaced", probing, func(g *gate) { g.expire(1250 * time.Millisecond) }, GateHalfOpen, true},
		{"half open: the probe fails", probing, func(g *gate) { g.fail(time.Second, ClosedByFailing, r) }, GateClosed, false},
		{"half open: nobody will hear the probe's answer", probing, func(g *gate) { g.lose(time.Second, r) }, GateClosed, false},
		{"half open: the probe was none", probing, (*gate).waive, GateHalfOpen, true},
		{"half open: the probe succeeds", probing, func(g *gate) { g.reopen(time.Second) }, GateRamp, false},
		{"ramp is over", ramp, (*gate).opened, GateOpen, false},
		{"ramp is closed", ramp, func(g *gate) { g.close(2*time.Second, ClosedByFailing, r) }, GateClosed, false},
	} {
		g := tc.from()
		tc.do(&g)
		if g.state != tc.want || g.due() != tc.due {
			t.Errorf("%s: %v, due %v; want %v, %v", tc.name, g.state, g.due(), tc.want, tc.due)
		}
		if passes := tc.want == GateOpen || tc.want == GateRamp; g.passing() != passes {
			t.Errorf("%s: passing %v", tc.name, g.passing())
		}
	}
}

// An application that restarts beside its sidecar is to be served within 250 ms
// of its port being open, and any other upstream soon after it is back.
func TestProbesWaitNoLongerThanARestartBears(t *testing.T) {
	if refusedMost > 200*time.Millisecond || failedMost > time.Second {
		t.Errorf("probes wait up to %v after a refusal and %v otherwise, want at most 200ms and 1s", refusedMost, failedMost)
	}
}

// The waits for the next probe, k failures after the gate was closed.
func TestProbesComeInTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	ms := time.Millisecond
	for why, most := range map[ClosedBy][]time.Duration{
		ClosedByRefused: {25 * ms, 50 * ms, 100 * ms, 150 * ms, 150 * ms, 150 * ms},
		ClosedByDial:    {100 * ms, 200 * ms, 400 * ms, 500 * ms, 500 * ms, 500 * ms},
		ClosedByFailing: {100 * ms, 200 * ms, 400 * ms, 500 * ms, 500 * ms, 500 * ms},
	} {
		var low, high [6]time.Duration
		for range 2000 {
			var g gate
			g.close(0, why, r)
			for k, m := range most {
				wait := g.event()
				if wait < m/2 || wait > m {
					t.Fatalf("%v, %d failures: %v, want within %v to %v", why, k, wait, m/2, m)
				}
				if low[k] == 0 || wait < low[k] {
					low[k] = wait
				}
				high[k] = max(high[k], wait)
				g.state, g.probe = GateHalfOpen, 1
				g.fail(0, why, r)
			}
		}
		for k, m := range most {
			if low[k] > m*52/100 || high[k] < m*98/100 {
				t.Errorf("%v, %d failures: %v to %v, want all of %v to %v", why, k, low[k], high[k], m/2, m)
			}
		}
	}
	var g gate
	g.close(0, ClosedByRefused, r)
	for range 10_000 {
		g.fail(0, ClosedByRefused, r)
	}
	g.reopen(0)
	g.close(0, ClosedByRefused, r)
	if g.event() > 25*ms {
		t.Errorf("success did not reset the wait: %v", g.event())
	}
}

// A hung probe stays open for long once callers have left, and is tried again
// sooner while they all wait on.
func TestHungProbes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		var g gate
		g.close(0, ClosedByStall, r)
		g.begin(0, r)
		if at := g.event(); at < 3*time.Second || at > 6*time.Second {
			t.Fatalf("patient callers: next probe after %v", at)
		}
		g.lostPatience(r)
		first := g.event()
		if first < 30*time.Second || first > time.Minute {
			t.Fatalf("a caller left: next probe after %v", first)
		}
		g.lostPatience(r)
		if g.event() != first {
			t.Fatal("every caller who leaves moves the next probe")
		}
		g.expire(first)
		g.begin(first, r)
		if d := g.event() - first; d < time.Minute || d > 2*time.Minute {
			t.Fatalf("second hung probe: next after %v", d)
		}
	}
}

// The recovery of an upstream that refused, or whose statuses were failures, does not
// wait as long as one probe takes.
func TestHungProbesOfAnUpstreamThatIsNotSilent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for why, most := range map[ClosedBy]time.Duration{
		ClosedByRefused: connectFirst, ClosedByDial: connectFirst, ClosedByFailing: failedMost,
	} {
		var g gate
		g.close(0, why, r)
		g.state = GateHalfOpen
		g.begin(0, r)
		if at := g.event(); at < most/2 || at > most {
			t.Errorf("%v: another probe after %v, want %v to %v", why, at, most/2, most)
		}
		for range 20 {
			now := g.probeEnds
			g.expire(now)
			g.begin(now, r)
		}
		if left := g.probeEnds - g.begunAt; left < connectMost/2 {
			t.Errorf("%v: after twenty hung probes another one every %v", why, left)
		}
	}
}

func TestProbeNumbersAreNeverZero(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	g := gate{state: GateHalfOpen, lastProbe: 1<<32 - 1}
	if n := g.begin(0, r); n == 0 {
		t.Error("probe 0 is none")
	}
}
