package breaker

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Every state with every event. An event that is not listed leaves the state unchanged.
func TestBreakerTransitions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	closed := func() breaker { g := breaker{}; g.trip(0, OpenedByRefused, r); return g }
	due := func() breaker { g := closed(); g.expire(time.Second); return g }
	probing := func() breaker { g := due(); g.beginProbe(time.Second, r); return g }
	ramp := func() breaker { g := probing(); g.beginSlowStart(time.Second); return g }
	open := func() breaker { return breaker{} }
	for _, tc := range []struct {
		name string
		from func() breaker
		do   func(*breaker)
		want State
		due  bool
	}{
		{"open is closed by a refusal", open, func(g *breaker) { g.trip(0, OpenedByRefused, r) }, Open, false},
		{"open is closed by a stall, the probe is due at once", open, func(g *breaker) { g.trip(0, OpenedByStall, r) }, HalfOpen, true},
		{"open stays open when a ramp is said to be over", open, (*breaker).close, Closed, false},
		{"open does not expire", open, func(g *breaker) { g.expire(time.Hour) }, Closed, false},
		{"closed waits", closed, func(g *breaker) { g.expire(time.Millisecond) }, Open, false},
		{"closed comes due", closed, func(g *breaker) { g.expire(25 * time.Millisecond) }, HalfOpen, true},
		{"closed reopens on a late response", closed, func(g *breaker) { g.beginSlowStart(0) }, SlowStart, false},
		{"half open: the probe is sent", due, func(g *breaker) { g.beginProbe(time.Second, r) }, HalfOpen, false},
		{"half open: the probe hangs", probing, func(g *breaker) { g.expire(1100 * time.Millisecond) }, HalfOpen, false},
		{"half open: a hung probe is replaced", probing, func(g *breaker) { g.expire(1250 * time.Millisecond) }, HalfOpen, true},
		{"half open: the probe fails", probing, func(g *breaker) { g.probeFailed(time.Second, OpenedByFailing, r) }, Open, false},
		{"half open: the probe's connection is closed", probing, func(g *breaker) { g.probeClosed(time.Second, r) }, Open, false},
		{"half open: the probe was none", probing, (*breaker).discardProbe, HalfOpen, true},
		{"half open: the probe succeeds", probing, func(g *breaker) { g.beginSlowStart(time.Second) }, SlowStart, false},
		{"ramp is over", ramp, (*breaker).close, Closed, false},
		{"ramp is closed", ramp, func(g *breaker) { g.trip(2*time.Second, OpenedByFailing, r) }, Open, false},
	} {
		g := tc.from()
		tc.do(&g)
		if g.state != tc.want || g.due() != tc.due {
			t.Errorf("%s: %v, due %v; want %v, %v", tc.name, g.state, g.due(), tc.want, tc.due)
		}
		if passes := tc.want == Closed || tc.want == SlowStart; g.allowsRequests() != passes {
			t.Errorf("%s: passing %v", tc.name, g.allowsRequests())
		}
	}
}

// An application that restarts beside its sidecar must be served within 250 ms of its port being
// open, and any other upstream soon after its recovery.
func TestProbesWaitNoLongerThanARestartBears(t *testing.T) {
	if refusedMax > 200*time.Millisecond || failedMax > time.Second {
		t.Errorf("probes wait up to %v after a refusal and %v otherwise, want at most 200ms and 1s", refusedMax, failedMax)
	}
}

// The waits before the next probe, k failures after the breaker opened.
func TestProbesComeInTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	ms := time.Millisecond
	for why, most := range map[OpenedBy][]time.Duration{
		OpenedByRefused: {25 * ms, 50 * ms, 100 * ms, 150 * ms, 150 * ms, 150 * ms},
		OpenedByDial:    {100 * ms, 200 * ms, 400 * ms, 500 * ms, 500 * ms, 500 * ms},
		OpenedByFailing: {100 * ms, 200 * ms, 400 * ms, 500 * ms, 500 * ms, 500 * ms},
	} {
		var low, high [6]time.Duration
		for range 2000 {
			var g breaker
			g.trip(0, why, r)
			for k, m := range most {
				wait := g.nextEvent()
				if wait < m/2 || wait > m {
					t.Fatalf("%v, %d failures: %v, want within %v to %v", why, k, wait, m/2, m)
				}
				if low[k] == 0 || wait < low[k] {
					low[k] = wait
				}
				high[k] = max(high[k], wait)
				g.state, g.probe = HalfOpen, 1
				g.probeFailed(0, why, r)
			}
		}
		for k, m := range most {
			if low[k] > m*52/100 || high[k] < m*98/100 {
				t.Errorf("%v, %d failures: %v to %v, want all of %v to %v", why, k, low[k], high[k], m/2, m)
			}
		}
	}
	var g breaker
	g.trip(0, OpenedByRefused, r)
	for range 10_000 {
		g.probeFailed(0, OpenedByRefused, r)
	}
	g.hung = 10_000
	g.beginSlowStart(0)
	g.trip(0, OpenedByRefused, r)
	if g.nextEvent() > 25*ms {
		t.Errorf("success did not reset the wait: %v", g.nextEvent())
	}
	g.beginProbe(0, r)
	if g.probeEnds > connectFirst {
		t.Errorf("success did not reset the timeout of a probe: %v", g.probeEnds)
	}
}

// A hung probe stays in flight for long once clients have left. Another one follows sooner while
// all of them keep waiting.
func TestHungProbes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var g breaker // each outage is judged by its own clients
	for now := time.Minute; now < 1000*time.Minute; now += time.Minute {
		g.trip(now, OpenedByStall, r)
		g.beginProbe(now, r)
		if after := g.nextEvent() - now; after < 3*time.Second || after > 6*time.Second {
			t.Fatalf("patient clients: next probe after %v", after)
		}
		g.clientLeftLate(r)
		first := g.nextEvent()
		if after := first - now; after < 30*time.Second || after > time.Minute {
			t.Fatalf("a client left: next probe after %v", after)
		}
		g.clientLeftLate(r)
		if g.nextEvent() != first {
			t.Fatal("every client who leaves moves the next probe")
		}
		g.beginSlowStart(now)
	}
}

// If the upstream refused connections or its statuses were failures, its recovery does not wait for
// the response to one probe.
func TestHungProbesOfAnUpstreamThatIsNotSilent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for why, most := range map[OpenedBy]time.Duration{
		OpenedByRefused: connectFirst, OpenedByDial: connectFirst, OpenedByFailing: failedMax,
	} {
		var g breaker
		g.trip(0, why, r)
		g.state = HalfOpen
		g.beginProbe(0, r)
		if at := g.nextEvent(); at < most/2 || at > most {
			t.Errorf("%v: another probe after %v, want %v to %v", why, at, most/2, most)
		}
		for range 20 {
			now := g.probeEnds
			g.expire(now)
			g.beginProbe(now, r)
		}
		if left := g.probeEnds - g.probeStartedAt; left < connectMax/2 {
			t.Errorf("%v: after twenty hung probes another one every %v", why, left)
		}
	}
}

func TestProbeNumbersAreNeverZero(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	g := breaker{state: HalfOpen, lastProbe: 1<<32 - 1}
	if n := g.beginProbe(0, r); n == 0 {
		t.Error("probe 0 is none")
	}
}

// A probe that is a request of its own may take long to be answered, whatever opened the breaker. A
// stopped upstream gets few of them.
func TestAnActiveProbeIsNotRepeatedSoon(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, why := range []OpenedBy{OpenedByRefused, OpenedByFailing} {
		g := breaker{activeProbe: true}
		g.trip(0, why, r)
		g.state = HalfOpen
		g.beginProbe(0, r)
		if at := g.nextEvent(); at < hungMin {
			t.Errorf("%v: another probe after %v", why, at)
		}
	}
}

// What opened the breaker, and then what the probe found, says what closes it.
func TestReason(t *testing.T) {
	for _, tc := range []struct {
		state      State
		why        OpenedBy
		end        AttemptEnd
		unanswered bool
		want       OpenedBy
	}{
		{Closed, OpenedByNothing, AttemptEnd{Kind: Refused}, true, OpenedByRefused},
		{Closed, OpenedByNothing, AttemptEnd{Kind: DialFailed}, true, OpenedByDial},
		{Closed, OpenedByNothing, AttemptEnd{Kind: Reset}, true, OpenedByStall},
		{Closed, OpenedByStall, AttemptEnd{Kind: Reset}, false, OpenedByFailing},
		{SlowStart, OpenedByStall, AttemptEnd{Status: 503}, false, OpenedByFailing},
		{HalfOpen, OpenedByStall, AttemptEnd{Kind: Refused}, false, OpenedByRefused},
		{HalfOpen, OpenedByStall, AttemptEnd{Kind: Reset}, false, OpenedByStall},
		{HalfOpen, OpenedByStall, AttemptEnd{Status: 503}, true, OpenedByFailing},
		{HalfOpen, OpenedByFailing, AttemptEnd{Kind: Reset}, true, OpenedByFailing},
	} {
		g := breaker{state: tc.state, why: tc.why}
		if got := g.reason(tc.end, tc.unanswered); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
