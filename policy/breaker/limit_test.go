package breaker

import (
	"math"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/latency"
)

// bench is a limiter in front of a server, with unlimited demand, in steps of 1 ms.
type bench struct {
	l    concurrencyLimiter
	u    latency.Baseline
	now  time.Duration
	time func(atOnce int) time.Duration // latency at that many concurrent requests
	out  []time.Duration                // when each request in flight began
	even bool                           // all latencies are equal; otherwise they vary by a fifth
	most int
	bad  func(i int) bool
	n    int
}

func newBench(concurrency float64, usually time.Duration, answer func(int) time.Duration) *bench {
	b := &bench{time: answer, bad: func(int) bool { return false }}
	learn(&b.u, 15, window(repeat(100, usually)...), true)
	b.u.Concurrency = concurrency
	return b
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// run sends that many concurrent requests through the limit for d.
func (b *bench) run(d time.Duration, demand int) {
	for end := b.now + d; b.now < end; b.now += time.Millisecond {
		need := b.time(len(b.out))
		kept := b.out[:0]
		for _, began := range b.out {
			part := 0.8 + 0.4*float64(began.Milliseconds()*7919%101)/100
			if b.even {
				part = 1
			}
			if float64(b.now-began) < part*float64(need) {
				kept = append(kept, began)
				continue
			}
			b.n++
			b.l.recordEnd(b.now, began, !b.bad(b.n), &b.u)
		}
		b.out = kept
		for len(b.out) < demand && b.l.hasCapacity(int64(len(b.out))) {
			b.out = append(b.out, b.now)
		}
		if len(b.out) < demand {
			b.l.recordWait()
		}
		b.most = max(b.most, len(b.out))
	}
}

func TestSlowStartDoublesInTheTimeOfAResponse(t *testing.T) {
	b := newBench(10, 100*time.Millisecond, always(100*time.Millisecond))
	b.l.start(0, &b.u)
	for _, want := range []int64{10, 20, 40} {
		if got := b.l.wholeLimit(); got < want*9/10 || got > want*11/10 {
			t.Errorf("at %v: limit %d, want about %d", b.now, got, want)
		}
		b.run(101*time.Millisecond, 1000)
	}
}

// It grows fast to five times the previous concurrency, and then slowly.
func TestSlowStartEndsAtItsTop(t *testing.T) {
	b := newBench(12, 100*time.Millisecond, always(100*time.Millisecond))
	b.l.start(0, &b.u)
	b.run(1200*time.Millisecond, 1000)
	if b.most < 55 || b.most > 62 {
		t.Errorf("%d at once within 1.2 s, want 60", b.most)
	}
	b.run(800*time.Millisecond, 1000)
	if b.most > 70 {
		t.Errorf("%d at once within 2 s", b.most)
	}
	b.run(8*time.Second, 1000)
	if b.most < 200 {
		t.Errorf("%d at once after 10 s at an upstream that takes any number", b.most)
	}
}

// If the process has few requests, slow start goes up to the documented minimum and no further.
func TestSlowStartOfAQuietProcess(t *testing.T) {
	b := newBench(0.2, 100*time.Millisecond, always(100*time.Millisecond))
	b.l.start(0, &b.u)
	if b.l.wholeLimit() != 1 {
		t.Errorf("begins with %d", b.l.wholeLimit())
	}
	b.run(time.Second, 1000)
	if b.most != minConcurrencyLimit {
		t.Errorf("%d at once, want %d", b.most, minConcurrencyLimit)
	}
}

// An upstream without spare capacity: twice the requests take twice as long.
func TestSlowStartStopsWhereGoodputDoes(t *testing.T) {
	full := func(n int) time.Duration { return max(100*time.Millisecond, time.Duration(n)*5*time.Millisecond) } // 200/s
	b := newBench(20, 100*time.Millisecond, full)
	b.l.start(0, &b.u)
	b.run(time.Second, 1000)
	if b.l.starting || b.l.wholeLimit() > 50 {
		t.Errorf("starting %v, limit %d after a second", b.l.starting, b.l.wholeLimit())
	}
}

func TestSlowStartWithoutMemory(t *testing.T) {
	b := &bench{time: always(10 * time.Millisecond), bad: func(int) bool { return false }}
	b.l.start(0, &b.u)
	if b.l.wholeLimit() != startUnknown {
		t.Errorf("begins with %d", b.l.wholeLimit())
	}
	b.run(200*time.Millisecond, 1000)
	if b.most < 500 {
		t.Errorf("%d at once after 20 answers' time, where nothing is known that speaks against it", b.most)
	}
}

func TestFailuresShrink(t *testing.T) {
	b := newBench(10, 100*time.Millisecond, always(100*time.Millisecond))
	b.bad = func(i int) bool { return i%3 == 0 }
	b.l.bind(0, 100)
	b.run(5*time.Second, 1000)
	if got := b.l.wholeLimit(); got > 50 {
		t.Errorf("limit %d with every third failing", got)
	}
	b.run(time.Minute, 1000)
	if got := b.l.wholeLimit(); got != minConcurrencyLimit {
		t.Errorf("limit %d in the end, want %d", got, minConcurrencyLimit)
	}
}

// The server of issue 3 under overload: its goodput is highest at a concurrency of 307.
func TestClimbFindsTheBestOfAnOverloadedServer(t *testing.T) {
	storm := func(n int) time.Duration {
		return time.Duration(1e8 * math.Pow(1.05, max(0, float64(n-30)/15)))
	}
	b := newBench(50, 100*time.Millisecond, storm)
	b.l.bind(0, 700)
	b.run(20*time.Second, 2000)
	sum, n := 0, 0
	for range 300 {
		b.run(100*time.Millisecond, 2000)
		sum, n = sum+len(b.out), n+1
	}
	if mean := sum / n; mean < 120 || mean > 380 {
		t.Errorf("%d at once on average, want about 250", mean)
	}
	if b.l.baselineShifted {
		t.Error("overload was taken for a change of what is usual")
	}
}

// An upstream that is slow at any load is not limited for that.
func TestSlownessThatLoadDoesNotMakeIsInnocent(t *testing.T) {
	for _, even := range []bool{false, true} {
		b := newBench(10, 100*time.Millisecond, always(500*time.Millisecond))
		b.even = even
		b.l.bind(0, 100)
		for b.now < 10*time.Second && !b.l.baselineShifted {
			b.run(100*time.Millisecond, 110)
		}
		if !b.l.baselineShifted {
			t.Errorf("even %v: not innocent after %v", even, b.now)
		}
		if got := b.l.wholeLimit(); got < 10 {
			t.Errorf("even %v: limit %d, though ten went well before", even, got)
		}
	}
}

// Requests sent before the limit do not count in its first round. So that round must not begin
// before the first response to a request sent under it. Otherwise its goodput is too low, and the
// next round looks better with less concurrency. A slow upstream is then limited to what it needed
// when it was fast.
func TestTheFirstRoundIsMeasuredWhole(t *testing.T) {
	b := newBench(1, 10*time.Millisecond, always(250*time.Millisecond))
	b.now = 250 * time.Millisecond
	for i := range 20 {
		b.out = append(b.out, time.Duration(i)*12*time.Millisecond)
	}
	b.l.bind(b.now, 20)
	for b.now < 5*time.Second && !b.l.baselineShifted {
		b.run(100*time.Millisecond, 22)
		if got := b.l.wholeLimit(); got < 12 {
			t.Fatalf("limit %d after %v", got, b.now)
		}
	}
	if !b.l.baselineShifted {
		t.Error("not innocent after 5 s")
	}
}

// An upstream that recovered slower gets the concurrency that it needs, whatever the old baseline,
// but no more than increases goodput.
func TestSlowStartAnew(t *testing.T) {
	b := newBench(0.5, 10*time.Millisecond, always(500*time.Millisecond))
	b.l.start(0, &b.u)
	b.l.restartSlowStart(0, 0)
	b.run(5*time.Second, 1000)
	if b.most < 200 {
		t.Errorf("%d at once after ten answers' time, where any number brings more goodput", b.most)
	}
	one := newBench(0.5, 10*time.Millisecond, func(n int) time.Duration { return time.Duration(n) * 100 * time.Millisecond })
	one.l.start(0, &one.u)
	one.l.restartSlowStart(0, 0)
	one.run(10*time.Second, 1000)
	if one.most > 12 {
		t.Errorf("%d at once at an upstream that does one at a time", one.most)
	}
	var unbound concurrencyLimiter
	if unbound.restartSlowStart(0, 0); unbound.starting {
		t.Error("a limit that does not bind began a slow start")
	}
}

func TestLimitEndsWhenNobodyReachesIt(t *testing.T) {
	b := newBench(10, 100*time.Millisecond, always(100*time.Millisecond))
	b.l.start(0, &b.u)
	if b.l.mayEnd(time.Second, true) || b.l.nextEvent() != backoff.Forever {
		t.Error("ends though it is reached")
	}
	if b.l.mayEnd(2*time.Second, false) || b.l.nextEvent() != 3*time.Second {
		t.Errorf("event %v", b.l.nextEvent())
	}
	if b.l.mayEnd(2500*time.Millisecond, true); b.l.mayEnd(3*time.Second, false) {
		t.Error("ends though it was reached meanwhile")
	}
	if !b.l.mayEnd(4*time.Second, false) {
		t.Error("does not end after a second of ease")
	}
}

func TestTrickle(t *testing.T) {
	b := newBench(2, 100*time.Millisecond, always(100*time.Millisecond))
	b.l.start(time.Second, &b.u)
	due := 300 * time.Millisecond
	if b.l.trickle(1200*time.Millisecond, 0, due, 2, 0) || b.l.trickle(1400*time.Millisecond, 1300*time.Millisecond, due, 2, 0) {
		t.Error("lets one through though something was answered lately")
	}
	if !b.l.trickle(1600*time.Millisecond, 1300*time.Millisecond, due, 2, 0) || !b.l.hasCapacity(2) {
		t.Error("lets nothing through in a silence")
	}
	if b.l.trickle(1700*time.Millisecond, 0, due, 2, 0) {
		t.Error("lets two through at once")
	}
	b.l.recordEnd(1800*time.Millisecond, 1500*time.Millisecond, true, &b.u)
	if b.l.extra != 0 {
		t.Error("a response does not end it")
	}
	if !b.l.trickle(3*time.Second, 0, due, 700, 0) || !b.l.hasCapacity(700) || b.l.hasCapacity(701) {
		t.Error("not one more where the limit was lowered below what is in flight")
	}
}

// Requests in flight grow if more are sent than answered, not if responses only take longer.
func TestOverloadIsMoreThanIsResponded(t *testing.T) {
	type window struct{ sent, answered int64 }
	for _, tc := range []struct {
		name    string
		windows []window
		least   float64
		want    bool
	}{
		{"answers begin to take longer", []window{{400, 100}, {400, 400}, {410, 395}, {390, 400}}, 200, false},
		{"more comes, again and again", []window{{400, 300}, {400, 300}}, 200, true},
		{"a little more, but always", []window{{100, 90}, {100, 84}, {100, 84}, {100, 84}, {100, 84}}, 50, true},
		{"a few clients leave", []window{{400, 396}, {400, 396}, {400, 396}, {400, 396}}, 200, false},
		{"far less is answered than before", []window{{300, 300}, {300, 300}}, 450, true},
		{"few are, and that is chance", []window{{20, 20}, {20, 20}}, 25, false},
	} {
		var o overload
		got := false
		for _, w := range tc.windows {
			got = o.grows(w.sent, w.answered, tc.least) || got
		}
		if got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// A limit goes down only if many requests have to wait.
func TestALimitThatFewReachStays(t *testing.T) {
	for _, tc := range []struct {
		waits int
		down  bool
	}{{3, false}, {100, true}} {
		b := newBench(2, 100*time.Millisecond, always(300*time.Millisecond))
		b.l.bind(0, 40)
		b.l.round = round{limit: 40, good: 100, busy: 100 * 300 * time.Millisecond, took: time.Second, full: true, waits: tc.waits}
		if next := b.l.next(&b.u); next < 40 != tc.down || next > 40 {
			t.Errorf("%d of 100 waited: from 40 to %v", tc.waits, next)
		}
		b.l.unreachedSince = time.Second // no request waits any longer
		if next := b.l.next(&b.u); next != 40 {
			t.Errorf("nobody waits any longer: from 40 to %v", next)
		}
	}
}

// A slow start that succeeded is no overload: if requests wait after it, the limit first goes up.
func TestAfterASlowStartTheLimitGoesUpFirst(t *testing.T) {
	b := newBench(2, 100*time.Millisecond, always(300*time.Millisecond))
	b.l.start(0, &b.u)
	b.l.starting = false
	b.l.round = round{limit: 10, good: 100, busy: 100 * 300 * time.Millisecond, took: time.Second, full: true, waits: 100}
	if next := b.l.next(&b.u); next <= 10 {
		t.Errorf("from 10 to %v", next)
	}
}

// A limit that moves before it shows its effect moves without a reason. So each one applies for three
// of the usual latencies, however long they are. If requests sent under it fail, that is an effect.
func TestALimitWaitsForTheResponsesUnderIt(t *testing.T) {
	for name, bad := range map[string]bool{"good": false, "failing": true} {
		b := newBench(10, 20*time.Second, always(20*time.Second))
		b.bad = func(int) bool { return bad }
		b.even = bad
		b.now = 20 * time.Second
		for i := range 30 {
			b.out = append(b.out, time.Duration(i)*667*time.Millisecond)
		}
		b.l.bind(b.now, 30)
		least := 3 * b.u.Mean
		if bad {
			least = 20 * time.Second
		}
		limit, since, moves := b.l.limit, b.now, 0
		for b.now < 5*time.Minute {
			b.run(100*time.Millisecond, 1000)
			if b.l.limit == limit {
				continue
			}
			if took := b.now - since; took < least {
				t.Errorf("%s: from %v to %v after %v", name, limit, b.l.limit, took)
			}
			limit, since = b.l.limit, b.now
			moves++
		}
		if moves < 2 {
			t.Errorf("%s: %d moves", name, moves)
		}
	}
}

// An upstream whose responses take a minute rejects what is too much for it at once. The limit does not
// wait for the responses.
func TestQuickFailuresLowerTheLimitOfASlowUpstreamSoon(t *testing.T) {
	b := newBench(10, time.Minute, always(100*time.Millisecond))
	b.bad = func(int) bool { return true }
	b.l.bind(0, 100)
	b.run(5*time.Second, 1000)
	if got := b.l.wholeLimit(); got > 50 {
		t.Errorf("limit %d", got)
	}
}

// Failures are quicker than good responses, so at first there are only failures. They may still be a
// small share.
func TestAFewQuickFailuresDoNotLowerTheLimitOfASlowUpstream(t *testing.T) {
	b := newBench(10, time.Minute, nil)
	b.l.bind(0, 100)
	for n := 1; n <= 30; n++ {
		b.now += time.Second
		b.l.recordEnd(b.now, b.now-100*time.Millisecond, false, &b.u)
		if got, lowered := b.l.wholeLimit(), n > 25; got < 100 != lowered { // the first one begins the round
			t.Fatalf("limit %d after %d failures, with 100 in flight", got, n)
		}
	}
}

// How the limit of a slow upstream moves, where the usual latency is 100 ms.
func TestSeek(t *testing.T) {
	const more = 1000
	measured := func(limit float64, good int) round {
		return round{limit: limit, good: good, took: time.Second, full: true, measured: true}
	}
	for _, tc := range []struct {
		name       string
		sustained  float64
		last, this round
		bound      bool // by overload
		want       float64
		shifted    bool
	}{
		{"down to what the goodput needs, and a quarter more", 10, measured(100, 500), measured(80, 500), true, 62.5, false},
		{"by a fifth at least", 10, measured(100, 1000), measured(80, 1000), true, 64, false},
		{"by half at most", 10, measured(100, 100), measured(80, 100), true, 40, false},
		{"not below what was sustained", 50, measured(100, 100), measured(80, 100), true, 50, false},
		{"not below the least", 0, measured(6, 10), measured(4, 10), true, minConcurrencyLimit, false},
		{"first down", 10, round{}, measured(80, 500), true, 64, false},
		{"first down, but not below what was sustained", 70, round{}, measured(80, 500), true, 70, false},
		{"first up after a slow start", 10, round{}, measured(80, 500), false, more, false},
		{"goodput follows it down", 10, measured(100, 1000), measured(80, 800), true, more, true},
		{"goodput follows it up", 10, measured(80, 800), measured(100, 1000), true, more, false},
		{"goodput follows it by half", 10, measured(100, 1000), measured(80, 895), true, 80, false},
		{"it did not move", 10, measured(80, 500), measured(80, 400), true, 64, false},
	} {
		b := newBench(tc.sustained, 100*time.Millisecond, nil)
		b.u.Mean = 100 * time.Millisecond
		b.l = concurrencyLimiter{bound: true, overloaded: tc.bound, last: tc.last, round: tc.this}
		if got := b.l.seek(&b.u, more); math.Abs(got-tc.want) > 0.01 || b.l.baselineShifted != tc.shifted {
			t.Errorf("%s: %v, shifted %v; want %v, %v", tc.name, got, b.l.baselineShifted, tc.want, tc.shifted)
		}
	}
	b := newBench(10, 100*time.Millisecond, nil)
	for n := 1; n <= maxSlowRounds; n++ {
		b.l.round = measured(8, 10)
		if got := b.l.seek(&b.u, more); got != 10 || b.l.baselineShifted != (n == maxSlowRounds) {
			t.Errorf("%d slow rounds at a sustained limit: %v, shifted %v", n, got, b.l.baselineShifted)
		}
	}
}

// Twice as much comes as is answered: a limit binds, at what was in flight.
func TestOverloadBindsTheLimit(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	for range 10 {
		d.acquire()
	}
	for began := d.now; d.g.State().LimitBound == 0; d.advance(10 * time.Millisecond) {
		if d.now > began+10*time.Second {
			t.Fatalf("not bound with %d in flight", len(d.out))
		}
		d.acquire()
		d.acquire()
		d.end(0, AttemptEnd{Status: 200})
	}
	if n, s := len(d.out), d.g.State(); n > 800 || s.ConcurrencyLimit < n*9/10 || s.ConcurrencyLimit > n {
		t.Errorf("%d in flight, limit %d", n, s.ConcurrencyLimit)
	}
	d.want(Closed, OpenedByNothing)
}

// A burst, and a long poll that ends, count with their share of time, and no more than was in flight.
func TestLearnedConcurrency(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range 5 {
		for range 10 {
			d.acquire()
		}
		d.handleSignal(d.g.Expire(d.now))
		d.now += 10 * time.Millisecond
		for len(d.out) > 0 {
			d.end(0, AttemptEnd{Status: 200})
		}
		d.advance(2 * time.Second)
		d.handleSignal(d.g.Expire(d.now))
	}
	if c := d.g.State().LearnedConcurrency; c > 1 {
		t.Errorf("%v after bursts of 10 ms", c)
	}
	d.acquire()
	for range 60 {
		d.advance(time.Second)
		d.handleSignal(d.g.Expire(d.now))
	}
	d.end(0, AttemptEnd{Status: 200})
	for range 3 { // so that the window is no slower than usual
		d.acquire()
		d.now += 10 * time.Millisecond
		d.end(0, AttemptEnd{Status: 200})
	}
	d.advance(time.Second)
	d.handleSignal(d.g.Expire(d.now))
	if c := d.g.State().LearnedConcurrency; c > 1.1 {
		t.Errorf("%v after a long poll", c)
	}
}

// Without a breaker, failing responses bind the limit, once. Refused connections do not.
func TestWithoutABreakerFailuresBindTheLimit(t *testing.T) {
	for e, want := range map[AttemptEnd]uint64{{Status: 503}: 1, {Kind: Refused}: 0} {
		d := newGuardHarness(t, Options{NoBreaker: true})
		for range 2 * evidenceVolume {
			d.acquire()
			d.end(0, e)
		}
		if n := d.g.State().LimitBound; n != want {
			t.Errorf("%+v: bound %d times, want %d", e, n, want)
		}
	}
}

// Who comes now does not overtake who waits, even if a permit is free.
func TestNobodyOvertakesTheQueue(t *testing.T) {
	g := New(Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 1})
	p, _ := g.Acquire(0, Request{})
	g.Acquire(0, Request{})
	if s := g.Release(p, 0, AttemptEnd{Status: 200}); s&SignalWake == 0 {
		t.Fatal("nobody is woken")
	}
	if _, v := g.Acquire(0, Request{}); v != VerdictAtLimit {
		t.Errorf("verdict %d behind one who waits", v)
	}
}

// Long polls in flight keep their permits in an outage. The limit of a slow start is higher by those that
// can be told from requests that were just sent.
func TestASlowStartHasRoomForLongPolls(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range 20 {
		d.acquire() // a long poll
	}
	d.serve(15*time.Second, 5, 10*time.Millisecond)
	d.acquire()
	d.end(len(d.out)-1, AttemptEnd{Kind: Refused})
	d.advance(50 * time.Millisecond)
	d.endDial(Connected)
	d.want(SlowStart, OpenedByRefused)
	if n := d.g.State().ConcurrencyLimit; n < 15 || n > 20 {
		t.Errorf("limit %d beside 20 long polls", n)
	}
}

// An upstream that takes longer, and answers all the same, is not overloaded.
func TestSlowerResponsesAreNoOverload(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.serve(15*time.Second, 100, 250*time.Millisecond)
	if s := d.g.State(); s.LimitBound > 0 {
		t.Errorf("%+v", s)
	}
}

// What was learned does not fade while the breaker is open.
func TestAnOutageIsNotLearned(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	before := d.g.State().LearnedConcurrency
	d.acquire()
	d.end(0, AttemptEnd{Kind: Refused})
	for end := d.now + 10*time.Minute; d.now < end; d.advance(time.Second) {
		for len(d.dial) > 0 {
			d.endDial(Refused)
		}
	}
	for len(d.dial) == 0 {
		d.advance(time.Second)
	}
	d.endDial(Connected)
	d.advance(3 * time.Second)
	d.want(Closed, OpenedByRefused)
	for range 3 {
		d.acquire()
		d.advance(2 * time.Second)
		d.end(0, AttemptEnd{Status: 200})
	}
	if after := d.g.State().LearnedConcurrency; after < 0.9*before {
		t.Errorf("%v after an outage, %v before", after, before)
	}
}

// Two rounds that did not both measure a goodput under demand cannot be compared.
func TestElasticityNeedsTwoMeasuredRounds(t *testing.T) {
	a := round{limit: 100, good: 100, took: time.Second, full: true, measured: true}
	b := round{limit: 80, good: 100, took: time.Second, full: true}
	if e, known := elasticity(&a, &b); !known || e != 0 {
		t.Errorf("%v, %v", e, known)
	}
	for name, change := range map[string]func(a, b *round){
		"not measured":           func(a, _ *round) { a.measured = false },
		"nobody waited":          func(a, _ *round) { a.full = false },
		"nothing good before":    func(a, _ *round) { a.good = 0 },
		"nothing good":           func(_, b *round) { b.good = 0 },
		"the limit did not move": func(_, b *round) { b.limit = 100.5 },
	} {
		a, b := a, b
		change(&a, &b)
		if e, known := elasticity(&a, &b); known {
			t.Errorf("%s: %v", name, e)
		}
	}
}
