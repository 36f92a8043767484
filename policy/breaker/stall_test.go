package breaker

import (
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// hush simulates a silence with requests sent at the given times after the last response. It looks
// every 10 ms and returns when the silence is surprising.
func hush(u *latency.Baseline, sent []time.Duration, until time.Duration) (time.Duration, bool) {
	var s silence
	var c generations
	for now := time.Duration(0); now <= until; now += 10 * time.Millisecond {
		for len(sent) > 0 && sent[0] < now {
			c.acquire()
			sent = sent[1:]
		}
		if c.age(now, u); s.surprising(now, false, u, &c) {
			return now, true
		}
	}
	return 0, false
}

// age begins a generation when the latest one is old enough.
func (g *generations) age(now time.Duration, u *latency.Baseline) {
	if now >= g.now().began+overdue(u)/generationsPerOverdue {
		g.begin(now)
	}
}

// surprising reports whether there is a silence.
func (s *silence) surprising(now time.Duration, answered bool, u *latency.Baseline, c *generations) bool {
	if answered {
		s.end(now, c)
	}
	return s.suspicion(now, u, c) >= suspicionThreshold
}

func every(d time.Duration, n int) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = time.Duration(i+1) * d
	}
	return all
}

func TestSilence(t *testing.T) {
	ms := time.Millisecond
	fast := latencyWindow(repeat(100, 100*ms)...)
	half := latencyWindow(append(repeat(50, 10*ms), repeat(50, 30*time.Second)...)...)
	tenth := latencyWindow(append(repeat(90, 100*ms), repeat(10, time.Second)...)...)
	for _, tc := range []struct {
		name     string
		usual    *latency.Sums
		seconds  int
		sent     []time.Duration
		from, to time.Duration // when it is noticed; 0, 0: not within 25 s
	}{
		{"a busy upstream that stops is noticed within 400 ms", fast, 15, every(10*ms, 100), 300 * ms, 400 * ms},
		{"two requests are enough", fast, 15, every(10*ms, 2), 300 * ms, 500 * ms},
		{"one is not", fast, 15, every(10*ms, 1), 0, 0},
		{"few clients", latencyWindow(repeat(2, 100*ms)...), 15, every(500*ms, 20), 700 * ms, 1200 * ms},
		{"nothing sent, nothing missed", fast, 15, nil, 0, 0},
		{"long polls half of the time", half, 15, every(ms, 8), 0, 0},
		{"too many long polls at once", half, 15, every(ms, 100), 250 * ms, 300 * ms},
		{"slow endpoints in between", tenth, 15, every(10*ms, 3), 600 * ms, 2 * time.Second},
		{"slow endpoints, all of ten requests", tenth, 15, every(10*ms, 10), 300 * ms, 400 * ms},
		{"an upstream that takes a second", latencyWindow(repeat(100, time.Second)...), 15, every(10*ms, 1000), 3 * time.Second, 3500 * ms},
	} {
		var u latency.Baseline
		learn(&u, tc.seconds, tc.usual, true)
		at, is := hush(&u, tc.sent, 25*time.Second)
		if is != (tc.to > 0) || at < tc.from || at > tc.to {
			t.Errorf("%s: noticed %v after %v, want %v to %v", tc.name, is, at, tc.from, tc.to)
		}
	}
}

func TestSilenceOfAnUnknownUpstream(t *testing.T) {
	var u latency.Baseline
	if at, is := hush(&u, every(10*time.Millisecond, 1000), 10*time.Minute); is {
		t.Errorf("noticed after %v, though it may be slow", at)
	}
	var s silence
	for range manyClients {
		s.leave(0, 3*time.Second, true, &u)
	}
	if !s.surprising(3*time.Second, false, &u, &generations{}) {
		t.Error("three clients left and nobody was answered: not noticed")
	}
	learn(&u, 1, latencyWindow(repeat(5, 100*time.Millisecond)...), true)
	if at, is := hush(&u, every(500*time.Millisecond, 3), time.Minute); !is || at < 1600*time.Millisecond {
		t.Errorf("little known, and three requests: noticed %v after %v, want later than with more latencies", is, at)
	}
}

func TestAResponseEndsTheStall(t *testing.T) {
	var u latency.Baseline
	learn(&u, 15, latencyWindow(repeat(100, 100*time.Millisecond)...), true)
	var s silence
	var c generations
	for now := time.Duration(0); now < time.Minute; now += 10 * time.Millisecond {
		answered := now%(200*time.Millisecond) == 0
		c.acquire()
		if c.age(now, &u); s.surprising(now, answered, &u, &c) { // one in twenty is answered
			t.Fatalf("noticed after %v, though something was answered lately", now)
		}
	}
}

func TestWhatEndedIsNotMissed(t *testing.T) {
	var u latency.Baseline
	learn(&u, 15, latencyWindow(repeat(100, 100*time.Millisecond)...), true)
	var s silence
	var c generations
	for now := time.Duration(0); now < time.Minute; now += 100 * time.Millisecond {
		c.begin(now)
		i := c.acquire()
		if s.surprising(now, false, &u, &c) {
			t.Fatalf("%v: a single request in flight is missed", now)
		}
		c.end(Permit{generation: i})
	}
	c.acquire()
	if s.surprising(2*time.Minute, false, &u, &c) {
		t.Error("a single request in flight is missed")
	}
}

// Of the first requests after a pause, which come at once, one refreshes the state. The others are not taken for
// requests from before the pause.
func TestTheFirstRequestsAfterAPauseAreNoSilence(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(30*time.Second, 100, 100*time.Millisecond)
	d.advance(time.Second)
	d.acquire()
	d.advance(100 * time.Millisecond)
	d.end(0, AttemptEnd{Status: 200}) // and it is known before the pause
	d.advance(time.Minute)
	d.g.mu.Lock()
	for range 2 {
		if _, ok := d.g.AcquireFast(d.now); ok {
			t.Error("a permit while the state is refreshed")
		}
	}
	d.g.mu.Unlock()
	for range 3 {
		d.acquire()
	}
	if d.g.State().Suspect {
		t.Error("a silence is suspected at once")
	}
}

// An endpoint is lost, and another one, which may be cold, takes over from it. What was usual does not tell
// how long that takes to respond: only clients that leave late do, until a request sent since is answered.
func TestWhoTakesOverFromALostEndpointMayBeSlow(t *testing.T) {
	lose := map[string]func(d *guardHarness){
		"a connection that was lost": func(d *guardHarness) {
			d.acquire()
			d.end(len(d.out)-1, AttemptEnd{Kind: Reset, Key: 7})
			d.g.core.connections.check = noCheck // it found that connections are kept
		},
		"an endpoint without connections": func(d *guardHarness) { d.call(func() Signal { return d.g.EndpointLost(d.now) }) },
	}
	// ask sends a request each 10 ms.
	ask := func(d *guardHarness, t time.Duration) {
		for end := d.now + t; d.now < end; d.advance(10 * time.Millisecond) {
			d.acquire()
		}
	}
	for name, lose := range lose {
		t.Run(name, func(t *testing.T) {
			lost := func(t *testing.T) *guardHarness {
				d := newGuardHarness(t, Options{})
				d.serve(20*time.Second, 100, 20*time.Millisecond)
				ask(d, 50*time.Millisecond)
				lose(d)
				ask(d, 2*time.Second)
				if s := d.g.State(); s.Breaker != Closed || s.Suspect || s.LimitBound > 0 || s.Queued > 0 {
					t.Fatalf("after 2 s of silence: %+v", s)
				}
				return d
			}
			suspect := func(d *guardHarness) bool { ask(d, 500*time.Millisecond); return d.g.State().Suspect }

			d := lost(t)
			for range 4 {
				d.end(0, AttemptEnd{Status: 200}) // they were sent before
				ask(d, 100*time.Millisecond)
			}
			if suspect(d) || d.g.State().LimitBound > 0 {
				t.Error("an earlier request was answered late: what was usual counts again")
			}
			d.end(len(d.out)-1, AttemptEnd{Status: 200})
			for len(d.out) > 0 {
				d.end(0, AttemptEnd{Status: 200})
			}
			if !suspect(d) {
				t.Error("a later request was answered: silence does not count again")
			}
			d.call(func() Signal { return d.g.EndpointLost(d.now) })
			if !suspect(d) {
				t.Error("a loss in doubt ended the doubt")
			}

			d = lost(t)
			for range manyClients {
				p := d.out[10] // sent since
				d.out = slices.Delete(d.out, 10, 11)
				d.call(func() Signal { return second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned, Key: 7, Closed: true})) })
			}
			ask(d, time.Second)
			d.want(HalfOpen, OpenedByStall)
		})
	}
}

// After an outage silence counts as ever, although the outage began with a lost connection.
func TestSilenceCountsAfterAnOutage(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(20*time.Second, 100, 20*time.Millisecond)
	d.call(func() Signal { return d.g.EndpointLost(d.now) })
	d.acquire()
	d.end(len(d.out)-1, AttemptEnd{Kind: Refused})
	d.advance(time.Second)
	d.endDial(Connected)
	d.want(SlowStart, OpenedByRefused)
	for range 200 {
		d.acquire()
		d.advance(10 * time.Millisecond)
	}
	d.want(HalfOpen, OpenedByStall)
}

// One of many processes has seen few responses when the upstream stops. It holds requests back as soon as the
// silence is strange for what it has seen, but opens the breaker only if clients leave late.
func TestASilenceAfterFewResponses(t *testing.T) {
	d := newGuardHarness(t, Options{})
	ask := func(t time.Duration) {
		for end := d.now + t; d.now < end; d.advance(500 * time.Millisecond) {
			d.acquire()
		}
	}
	d.serve(6*time.Second, 2, 100*time.Millisecond)
	d.advance(10 * time.Millisecond)
	for len(d.out) > 0 {
		d.end(0, AttemptEnd{Status: 200})
	}
	if d.g.core.baseline.Established() {
		t.Fatal("the baseline is established")
	}
	ask(2500 * time.Millisecond)
	if s := d.g.State(); !s.Suspect || s.Breaker != Closed {
		t.Fatalf("after 2.5 s: %+v", s)
	}
	ask(5 * time.Second)
	d.want(Closed, OpenedByNothing)
	p := d.out[0]
	d.out = d.out[1:]
	d.call(func() Signal { return second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned, Key: 7, Closed: true})) })
	ask(time.Second)
	d.want(HalfOpen, OpenedByStall)
}

// Requests sent shortly before a response are as little missing as older ones: they may be long polls, or slow.
func TestWhatWasSentBeforeAResponseIsNotMissed(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(20*time.Second, 100, 20*time.Millisecond)
	d.advance(time.Second)
	for range 4 {
		d.acquire()
	}
	d.advance(40 * time.Millisecond)
	d.end(3, AttemptEnd{Status: 200})
	d.advance(2 * time.Second)
	d.acquire()
	if s := d.g.State(); s.Suspect {
		t.Errorf("what was sent before the last response is missed: %+v", s)
	}
	d.want(Closed, OpenedByNothing)
	d.advance(20 * time.Millisecond)
	d.end(3, AttemptEnd{Status: 200})
	for range 3 {
		p := d.out[0]
		d.out = d.out[1:]
		d.call(func() Signal { return second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned, Key: 7, Closed: true})) })
	}
	d.want(Closed, OpenedByNothing)
}
