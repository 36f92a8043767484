package breaker

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/queue"
)

// guardHarness is a Guard with its queue, used as a proxy uses it, on one goroutine.
type guardHarness struct {
	t    *testing.T
	g    *Guard
	now  time.Duration
	out  []Permit // taken, and their clients wait
	dial []Permit // probes by connecting
	line int
	keys []uint32 // of queued requests with a known URL, the newest last

	waiting []Request // queued with queue, the newest last
}

func newGuardHarness(t *testing.T, o Options) *guardHarness {
	t.Helper()
	o.Rand = rand.New(rand.NewPCG(1, 2))
	return &guardHarness{t: t, g: New(o)}
}

// acquire takes a permit for the URL that serve asks for, or joins the queue.
func (d *guardHarness) acquire() Verdict {
	p, v := d.g.Acquire(d.now, Request{Key: 7})
	if v <= VerdictProbe {
		d.out = append(d.out, p)
		return v
	}
	d.line++
	d.dequeue()
	return v
}

func (d *guardHarness) dequeue() {
	for d.line > 0 {
		p, v := d.g.Next(d.now, d)
		if v > VerdictProbe {
			return
		}
		d.line--
		d.out = append(d.out, p)
	}
}

// Pick implements Line: the newest first.
func (d *guardHarness) Pick(fits func(Request) bool) (r Request, ok bool) {
	if len(d.waiting)+len(d.keys) == 0 {
		r.Key = 7
		return r, fits(r)
	}
	for i := len(d.waiting) - 1; i >= 0; i-- {
		if r = d.waiting[i]; fits(r) {
			d.waiting = slices.Delete(d.waiting, i, i+1)
			return r, true
		}
	}
	for i := len(d.keys) - 1; i >= 0; i-- {
		if r = (Request{Key: d.keys[i]}); fits(r) {
			d.keys = slices.Delete(d.keys, i, i+1)
			return r, true
		}
	}
	return r, false
}

// handleSignal does what a signal asks for and checks that no queued request is forgotten.
func (d *guardHarness) handleSignal(s Signal) {
	d.t.Helper()
	if s&SignalWake != 0 {
		d.dequeue()
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	if d.g.core.waiting.all != d.line {
		d.t.Fatalf("%d wait, the guard counts %d", d.line, d.g.core.waiting.all)
	}
	if d.g.core.waiting.all > 0 && d.g.core.admitsAt(d.now) <= d.now && d.g.core.eventAt > d.now {
		d.t.Fatal("somebody waits who could be let in, and nothing says so")
	}
}

// end ends the attempt with the i-th permit.
func (d *guardHarness) end(i int, e AttemptEnd) {
	d.t.Helper()
	p := d.out[i]
	d.out = append(d.out[:i], d.out[i+1:]...)
	if e.Key == 0 && e.Kind == Responded {
		e.Key = 7
	}
	d.call(func() Signal { return d.g.Release(p, d.now, e) })
}

// call does what a call of the Guard asks for, and checks that a change of the next event is one of it.
func (d *guardHarness) call(f func() Signal) {
	d.t.Helper()
	before := d.g.NextEvent()
	s := f()
	if at := d.g.NextEvent(); at != before && s&SignalEvent == 0 {
		d.t.Fatalf("the next event moved from %v to %v, and no signal says so", before, at)
	}
	d.handleSignal(s)
}

// fail ends as many requests with 503 as are evidence.
func (d *guardHarness) fail() {
	d.t.Helper()
	for range many {
		d.acquire()
		d.end(0, AttemptEnd{Status: 503})
	}
}

// endDial ends the oldest probe by connecting.
func (d *guardHarness) endDial(kind EndKind) {
	d.t.Helper()
	p := d.dial[0]
	d.dial = d.dial[1:]
	d.call(func() Signal { return d.g.Release(p, d.now, AttemptEnd{Kind: kind}) })
}

// advance moves the clock, runs the events that come due, and begins to connect when a probe is due.
func (d *guardHarness) advance(t time.Duration) {
	d.t.Helper()
	for end := d.now + t; ; {
		at := d.g.NextEvent()
		if at > end {
			d.now = end
			return
		}
		d.now = max(d.now, at)
		d.call(func() Signal { return d.g.Expire(d.now) })
		if p, due := d.g.Probe(d.now); due {
			d.dial = append(d.dial, p)
		}
		if d.g.NextEvent() <= d.now {
			d.now += time.Microsecond
		}
	}
}

// serve answers n requests per second, one by one after latency, for d.
func (d *guardHarness) serve(t time.Duration, perSecond int, latency time.Duration) {
	d.t.Helper()
	gap := time.Second / time.Duration(perSecond)
	type due struct {
		p  Permit
		at time.Duration
	}
	var under []due
	for end := d.now + t; d.now < end; d.now += gap {
		for len(under) > 0 && under[0].at <= d.now {
			d.handleSignal(d.g.Release(under[0].p, under[0].at, AttemptEnd{Status: 200, Key: 7}))
			under = under[1:]
		}
		p, v := d.g.Acquire(d.now, Request{})
		if v != VerdictGo {
			d.t.Fatalf("at %v: verdict %d before a healthy upstream", d.now, v)
		}
		under = append(under, due{p, d.now + latency})
	}
	for _, u := range under {
		d.now = max(d.now, u.at)
		d.handleSignal(d.g.Release(u.p, d.now, AttemptEnd{Status: 200}))
	}
}

// untilOpen sends a hundred requests per second, without a response, until the breaker is open.
func (d *guardHarness) untilOpen() {
	d.t.Helper()
	for end := d.now + 3*time.Second; d.g.State().Breaker == Closed; d.advance(10 * time.Millisecond) {
		if d.now > end {
			d.t.Fatal("not closed within three seconds of silence")
		}
		d.acquire()
	}
}

func (d *guardHarness) want(state State, why OpenedBy) {
	d.t.Helper()
	s := d.g.State()
	if s.Breaker != state || s.OpenedBy != why {
		d.t.Fatalf("at %v: breaker %v by %v, want %v by %v", d.now, s.Breaker, s.OpenedBy, state, why)
	}
	if (state == Open || state == HalfOpen) && (s.Suspect || d.g.core.window.phase != shut) {
		d.t.Fatalf("at %v: breaker %v, and it is suspect or limited: %+v", d.now, state, s)
	}
}

func TestHealthyUpstreamIsLeftAlone(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(time.Minute, 100, 100*time.Millisecond)
	d.want(Closed, OpenedByNothing)
	s := d.g.State()
	if s.ConcurrencyLimit != 0 || s.InFlight != 0 || s.LimitBound != 0 {
		t.Errorf("%+v", s)
	}
	if s.LearnedConcurrency < 9 || s.LearnedConcurrency > 12 {
		t.Errorf("remembered %v, want 10", s.LearnedConcurrency)
	}
	about(t, "usual", s.MedianLatency, 100*time.Millisecond)
}

func TestOneRefusalOpensAndAConnectionCloses(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.acquire()
	d.end(0, AttemptEnd{Kind: Refused})
	d.want(Open, OpenedByRefused)
	if _, ok := d.g.Probe(d.now); ok {
		t.Fatal("a probe before it is due")
	}
	d.advance(25 * time.Millisecond)
	d.want(HalfOpen, OpenedByRefused)
	d.endDial(Refused)
	d.want(Open, OpenedByRefused)
	d.now += 50 * time.Millisecond
	p, ok := d.g.Probe(d.now)
	if !ok || !p.Probe() {
		t.Fatal("no probe when it is due")
	}
	if _, again := d.g.Probe(d.now); again || d.g.NextEvent() <= d.now {
		t.Fatalf("two probes at once: %v, the next event is at %v", again, d.g.NextEvent())
	}
	if v := d.acquire(); v != VerdictBreakerOpen {
		t.Fatalf("verdict %d beside a probe", v)
	}
	d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Kind: Connected}))
	if len(d.out) != 1 || d.out[0].Probe() {
		t.Fatalf("%d sent after the connection came, want the one who waited", len(d.out))
	}
	d.want(SlowStart, OpenedByRefused)
}

func TestWhatOpensTheBreaker(t *testing.T) {
	for _, tc := range []struct {
		name string
		e    AttemptEnd
		n    int // of 100 attempts; the others get 200
		want bool
	}{
		{"503", AttemptEnd{Status: 503}, 95, true},
		{"502", AttemptEnd{Status: 502}, 95, true},
		{"504", AttemptEnd{Status: 504}, 95, true},
		{"resets", AttemptEnd{Kind: Reset}, 95, true},
		{"attempt timeouts", AttemptEnd{Kind: TimedOut}, 95, true},
		{"half of them 503", AttemptEnd{Status: 503}, 50, false},
		{"500", AttemptEnd{Status: 500}, 100, false},
		{"429", AttemptEnd{Status: 429}, 100, false},
		{"404", AttemptEnd{Status: 404}, 100, false},
		{"505", AttemptEnd{Status: 505}, 100, false},
		{"unsent", AttemptEnd{Kind: Unsent}, 100, false},
	} {
		d := newGuardHarness(t, Options{})
		d.serve(5*time.Second, 50, 10*time.Millisecond)
		for i := 0; i < 400 && d.g.State().Breaker == Closed; i++ {
			d.now += 10 * time.Millisecond
			d.acquire()
			e := tc.e
			if i*37%100 >= tc.n { // mixed
				e = AttemptEnd{Status: 200}
			}
			d.end(len(d.out)-1, e)
		}
		if closed := d.g.State().Breaker != Closed; closed != tc.want {
			t.Errorf("%s: closed %v", tc.name, closed)
		}
	}
}

func TestTooFewFailuresDoNotOpenTheBreaker(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for range 19 {
		d.acquire()
		d.end(0, AttemptEnd{Status: 503})
	}
	d.want(Closed, OpenedByNothing)
	d.acquire()
	d.end(0, AttemptEnd{Status: 503})
	d.want(Open, OpenedByFailing)
}

// A client hammers one URL that always fails, among healthy ones.
func TestOneBadURLDoesNotOpenTheBreaker(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(10*time.Second, 20, 10*time.Millisecond)
	for i := range 3000 {
		d.now += 5 * time.Millisecond
		d.acquire()
		e := AttemptEnd{Status: 503, Key: 13}
		if i%20 == 0 {
			e = AttemptEnd{Status: 200, Key: uint32(100 + i)}
		}
		d.end(len(d.out)-1, e)
	}
	d.want(Closed, OpenedByNothing)
}

// Clients with two seconds of patience leave long before an attempt timeout.
func TestClientsLeavingLateAreEvidence(t *testing.T) {
	for _, tc := range []struct {
		patience time.Duration
		closes   bool
	}{{2 * time.Second, true}, {5 * time.Millisecond, false}} {
		d := newGuardHarness(t, Options{})
		d.serve(10*time.Second, 50, 10*time.Millisecond)
		for i := 0; i < 100 && d.g.State().Breaker == Closed; i++ {
			d.acquire()
			p := d.out[len(d.out)-1]
			d.out = d.out[:len(d.out)-1]
			d.now += tc.patience
			d.handleSignal(second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned, Closed: true})))
		}
		if closed := d.g.State().Breaker != Closed; closed != tc.closes {
			t.Errorf("patience %v: closed %v", tc.patience, closed)
		}
	}
}

func second(_ Permit, s Signal) Signal { return s }

func TestAStoppedUpstreamGetsFewRequests(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.untilOpen()
	d.want(HalfOpen, OpenedByStall)
	if len(d.out) < 20 || len(d.out) > 55 {
		t.Errorf("%d requests were sent to it", len(d.out))
	}
	if p := d.out[len(d.out)-1]; !p.Probe() {
		t.Error("the last of them is no probe")
	}
	probes := d.g.State().Probes
	d.advance(2500 * time.Millisecond)
	if n := d.g.State().Probes; n != probes {
		t.Errorf("%d probes while one hangs", n)
	}
	// Any late response counts.
	d.end(3, AttemptEnd{Status: 200})
	d.want(SlowStart, OpenedByStall)
}

// A probe that is known to be lost makes room for another one, once, and its response still counts.
func TestAProbeThatIsGivenUpMakesRoomForAnother(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.untilOpen()
	before := d.g.State().Probes
	first := d.out[len(d.out)-1]
	d.acquire()
	if d.line == 0 || !d.g.ProbePending(first) {
		t.Fatal("no probe hangs")
	}
	d.handleSignal(d.g.ReplaceProbe(d.out[0], d.now)) // this is no probe
	sent := len(d.out)
	d.handleSignal(d.g.ReplaceProbe(first, d.now))
	if n := len(d.out); n != sent+1 || !d.out[sent].Probe() || d.g.ProbePending(first) || !d.g.ProbePending(d.out[sent]) {
		t.Fatalf("%d sent, want one probe", n-sent)
	}
	d.acquire()
	d.handleSignal(d.g.ReplaceProbe(first, d.now))
	if n := d.g.State().Probes - before; n != 1 {
		t.Errorf("%d more probes, want 1", n)
	}
	d.end(sent-1, AttemptEnd{Status: 200})
	d.want(SlowStart, OpenedByStall)
}

// Late responses of an upstream that refuses connections prove nothing: they may be the last.
func TestLateResponsesDoNotCloseTheBreakerWhileRefused(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.now = time.Second
	d.acquire()
	d.acquire()
	d.end(0, AttemptEnd{Kind: Refused})
	d.end(0, AttemptEnd{Status: 200})
	d.want(Open, OpenedByRefused)
}

func TestAnAbandonedAttemptKeepsItsPermit(t *testing.T) {
	d := newGuardHarness(t, Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 1, NoBreaker: true})
	d.acquire()
	_, s := d.g.Abandon(d.out[0], d.now, AttemptEnd{Kind: Abandoned, Closed: true})
	d.out = nil
	d.handleSignal(s)
	if v := d.acquire(); v != VerdictAtLimit {
		t.Fatalf("verdict %d beside an abandoned attempt and a limit of 1", v)
	}
	if g := d.g.State(); g.InFlight != 1 || g.Abandoned != 1 {
		t.Errorf("%+v", g)
	}
}

// Beside a circuit breaker, a fixed limit counts the attempts that somebody waits for. One
// that is abandoned makes room for a queued request at once.
func TestAFixedLimitDoesNotCountWhatWasAbandoned(t *testing.T) {
	d := newGuardHarness(t, Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 2})
	d.serve(10*time.Second, 10, 100*time.Millisecond)
	for range 2 {
		d.acquire()
	}
	if v := d.acquire(); v != VerdictAtLimit {
		t.Fatalf("verdict %d at the limit", v)
	}
	p := d.out[0]
	d.out = d.out[1:]
	d.handleSignal(second(d.g.Abandon(p, d.now, AttemptEnd{Kind: TimedOut, Closed: true})))
	if len(d.out) != 2 {
		t.Fatalf("%d in flight after one of two was abandoned and another waited", len(d.out))
	}
	if v := d.acquire(); v != VerdictAtLimit {
		t.Errorf("verdict %d at the limit again", v)
	}
	if g := d.g.State(); g.InFlight != 3 || g.Abandoned != 1 {
		t.Errorf("%d in flight, %d abandoned", g.InFlight, g.Abandoned)
	}
}

// Nobody reads the connection any more: a bound frees the permit.
func TestAnAbandonedPermitIsFreedByABound(t *testing.T) {
	for _, tc := range []struct{ latency, least time.Duration }{
		{0, 4 * time.Second}, // not known
		{10 * time.Millisecond, time.Second},
		{500 * time.Millisecond, 6500 * time.Millisecond},
		{10 * time.Second, 10 * time.Second},
	} {
		d := newGuardHarness(t, Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 30, NoBreaker: true})
		if tc.latency > 0 {
			d.serve(100*time.Second, 2, tc.latency)
		}
		for range 30 {
			d.acquire()
		}
		for _, p := range d.out {
			d.handleSignal(second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned, Closed: true})))
		}
		d.out = nil
		if v := d.acquire(); v != VerdictAtLimit {
			t.Fatalf("verdict %d", v)
		}
		d.advance(tc.least * 8 / 10)
		if len(d.out) != 0 {
			t.Errorf("latency %v: freed within %v", tc.latency, tc.least)
		}
		d.advance(tc.least * 15 / 10)
		if len(d.out) != 1 {
			t.Errorf("latency %v: not freed within %v", tc.latency, 2*tc.least)
		}
	}
}

func TestAProbesSuccessFreesWhatWasAbandoned(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.untilOpen()
	probe := len(d.out) - 1
	var late []Permit
	for _, p := range d.out[:probe] {
		q, s := d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned})
		d.handleSignal(s)
		late = append(late, q)
	}
	d.out = d.out[probe:]
	d.end(0, AttemptEnd{Status: 200})
	if s := d.g.State(); s.Abandoned != 0 || s.InFlight != len(d.out) {
		t.Errorf("%d abandoned, %d in flight, %d sent", s.Abandoned, s.InFlight, len(d.out))
	}
	before := d.g.State().InFlight
	for _, p := range late { // they are still answered
		d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Status: 200}))
	}
	if s := d.g.State(); s.InFlight < before {
		t.Errorf("%d in flight after %d: a place was given back twice", s.InFlight, before)
	}
}

func TestFixedLimit(t *testing.T) {
	d := newGuardHarness(t, Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 3})
	for i, want := range []Verdict{VerdictGo, VerdictGo, VerdictGo, VerdictAtLimit, VerdictAtLimit} {
		if v := d.acquire(); v != want {
			t.Errorf("request %d: verdict %d, want %d", i, v, want)
		}
	}
	d.end(0, AttemptEnd{Status: 200})
	if len(d.out) != 3 || d.line != 1 {
		t.Errorf("%d sent, %d in line", len(d.out), d.line)
	}
	d.g.CancelWait(d.now, Request{})
	d.line--
	d.handleSignal(0)
}

func TestWithoutABreakerNothingIsQueued(t *testing.T) {
	d := newGuardHarness(t, Options{NoBreaker: true, ConcurrencyLimit: ConcurrencyLimitOff})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	for i := range 1000 {
		d.now += 10 * time.Millisecond
		if v := d.acquire(); v != VerdictGo {
			t.Fatalf("request %d: verdict %d", i, v)
		}
	}
	for range 500 {
		d.end(0, AttemptEnd{Kind: Refused})
		d.end(0, AttemptEnd{Status: 503})
	}
	d.want(Closed, OpenedByNothing)
}

// Without a breaker, the adaptive limit protects a stopped upstream.
func TestWithoutABreakerTheLimitBinds(t *testing.T) {
	d := newGuardHarness(t, Options{NoBreaker: true})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	for range 500 {
		d.now += 10 * time.Millisecond
		d.acquire()
	}
	if s := d.g.State(); s.ConcurrencyLimit == 0 || len(d.out) > 80 {
		t.Errorf("limit %d, %d sent to a stopped upstream", s.ConcurrencyLimit, len(d.out))
	}
}

func TestSlowStartGrowsAndEnds(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.refuseOnce(500)
	most := 0
	for len(d.out) > 0 {
		most = max(most, len(d.out))
		if s := d.g.State(); s.InFlight > s.ConcurrencyLimit {
			t.Fatalf("%d in flight, limit %d", s.InFlight, s.ConcurrencyLimit)
		}
		d.advance(100 * time.Millisecond)
		for range len(d.out) {
			d.end(0, AttemptEnd{Status: 200})
		}
	}
	if most < 45 || most > 75 {
		t.Errorf("%d at once in slow start, want about 55", most)
	}
	d.advance(2 * time.Second)
	d.want(Closed, OpenedByRefused)
	if s := d.g.State(); s.ConcurrencyLimit != 0 {
		t.Errorf("limit %d after slow start", s.ConcurrencyLimit)
	}
}

func TestZeroPermitIsNone(t *testing.T) {
	g := New(Options{})
	if s := g.Release(Permit{}, 0, AttemptEnd{Status: 200}); s != 0 {
		t.Errorf("signal %d", s)
	}
	if p, s := g.Abandon(Permit{}, 0, AttemptEnd{}); s != 0 || p.Taken() {
		t.Errorf("signal %d, taken %v", s, p.Taken())
	}
	if p, v := g.Next(0, nil); p.Taken() || v != VerdictBreakerOpen {
		t.Errorf("taken %v, verdict %d, and nobody waits", p.Taken(), v)
	}
	if n := g.State().InFlight; n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestGuardOptions(t *testing.T) {
	for _, tc := range []struct {
		o  Options
		ok bool
	}{
		{Options{}, true},
		{Options{ConcurrencyLimit: ConcurrencyLimitOff, NoBreaker: true}, true},
		{Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 1}, true},
		{Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: maxFixed}, true},
		{Options{ConcurrencyLimit: ConcurrencyLimitFixed}, false},
		{Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: -1}, false},
		{Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: maxFixed + 1}, false},
		{Options{ConcurrencyLimit: 3}, false},
	} {
		if err := tc.o.Validate(); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc.o, err)
		}
		New(tc.o).Acquire(0, Request{})
	}
}

func TestGuardSetsHaveLabels(t *testing.T) {
	seen := map[string]bool{}
	for s := range State(NumBreakerStates) {
		seen[s.String()] = s.Explain() != ""
	}
	for c := range OpenedBy(NumOpenedBy) {
		seen[c.String()] = c.Explain() != ""
	}
	if len(seen) != NumBreakerStates+NumOpenedBy || seen["invalid"] || seen[""] {
		t.Errorf("labels: %v", seen)
	}
	if State(200).String() != "invalid" || OpenedBy(200).String() != "invalid" {
		t.Error("a value outside the set has a label")
	}
}

// Many goroutines, every kind of end, and a breaker that opens and closes all the time. In the end
// no permit is taken. At no time is there a second probe, or more in flight than the limit allows.
func TestNoPermitIsLost(t *testing.T) {
	for _, o := range []Options{{}, {ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 5}, {NoBreaker: true}, {ConcurrencyLimit: ConcurrencyLimitOff}} {
		h := &concurrentHarness{g: New(o), fixed: int64(o.FixedLimit), line: queue.New[chan Permit](50)}
		var workers sync.WaitGroup
		for i := range 8 {
			workers.Go(func() { h.work(rand.New(rand.NewPCG(uint64(i), 9)), 4000) })
		}
		workers.Wait()
		for range 200 { // requests that still wait are admitted by time alone
			h.expire(time.Second)
		}
		h.g.Expire(h.tick(5 * time.Minute))
		if s := h.g.State(); s.InFlight != 0 || s.Queued != 0 || s.Abandoned != 0 {
			t.Errorf("%+v: left over: %+v", o, s)
		}
		if h.broken != "" {
			t.Errorf("%+v: %s", o, h.broken)
		}
		t.Logf("%+v", h.g.State())
	}
}

// concurrentHarness is what the proxy keeps beside a Guard, for several goroutines.
type concurrentHarness struct {
	picked chan Permit // by Pick
	g      *Guard
	fixed  int64

	mu     sync.Mutex // guards the fields below, like the lock of the proxy's queue
	line   *queue.Queue[chan Permit]
	now    time.Duration
	broken string
}

func (h *concurrentHarness) tick(d time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += d
	return h.now
}

// expire lets time pass. A probe by connecting succeeds at once.
func (h *concurrentHarness) expire(d time.Duration) {
	now := h.tick(d)
	h.handleSignal(h.g.Expire(now))
	if p, due := h.g.Probe(now); due {
		h.handleSignal(h.g.Release(p, now, AttemptEnd{Kind: Connected}))
	}
}

func (h *concurrentHarness) handleSignal(s Signal) {
	if s&SignalWake == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dequeue()
}

func (h *concurrentHarness) dequeue() {
	for h.line.Len() > 0 {
		p, v := h.g.Next(h.now, h)
		if v > VerdictProbe {
			return
		}
		h.check(v)
		h.picked <- p
	}
}

// Pick implements Line.
func (h *concurrentHarness) Pick(fits func(Request) bool) (Request, bool) {
	if !fits(Request{}) {
		return Request{}, false
	}
	h.picked, _ = h.line.Newest()
	return Request{}, true
}

// check is called with mu held, so that other goroutines can only release permits.
func (h *concurrentHarness) check(v Verdict) {
	s := h.g.State()
	if n := int64(s.InFlight - s.Abandoned); h.fixed > 0 && v == VerdictGo && n > h.fixed {
		h.broken = "more in flight than the limit"
	}
}

// enter takes a permit, after a short wait if necessary.
func (h *concurrentHarness) enter(r *rand.Rand) (Permit, bool) {
	now := h.tick(time.Duration(r.IntN(3)) * time.Millisecond)
	if p, ok := h.g.AcquireFast(now); ok {
		return p, true
	}
	h.mu.Lock()
	p, v := h.g.Acquire(h.now, Request{})
	if v <= VerdictProbe {
		h.check(v)
		h.mu.Unlock()
		return p, true
	}
	c := make(chan Permit, 1)
	ticket, out, dropped := h.line.Push(c)
	if dropped {
		h.g.CancelWait(h.now, Request{})
		close(out)
	}
	h.mu.Unlock()
	for range r.IntN(20) {
		h.expire(time.Duration(r.IntN(50)) * time.Millisecond)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line.Remove(ticket) {
		h.g.CancelWait(h.now, Request{})
		return Permit{}, false
	}
	p, ok := <-c
	return p, ok
}

func (h *concurrentHarness) work(r *rand.Rand, n int) {
	for range n {
		p, ok := h.enter(r)
		if !ok {
			continue
		}
		now := h.tick(time.Duration(r.IntN(20)) * time.Millisecond)
		switch k := r.IntN(100); {
		case k < 60:
			h.handleSignal(h.g.Release(p, now, AttemptEnd{Status: 200, Key: uint32(k)}))
		case k < 70:
			h.handleSignal(h.g.Release(p, now, AttemptEnd{Status: 503, Key: 3}))
		case k < 71:
			h.handleSignal(h.g.Release(p, now, AttemptEnd{Kind: EndKind(r.IntN(int(numEndKinds)))}))
		case k < 75:
			h.handleSignal(h.g.Release(p, now, AttemptEnd{Kind: Unsent}))
		case k < 85:
			h.handleSignal(second(h.g.Abandon(p, now+3*time.Second, AttemptEnd{Kind: Abandoned, Closed: true})))
		default:
			q, s := h.g.Abandon(p, now, AttemptEnd{Kind: TimedOut})
			h.handleSignal(s)
			h.handleSignal(h.g.Release(q, h.tick(time.Duration(r.IntN(200))*time.Millisecond), AttemptEnd{Status: 200}))
		}
	}
}

func TestGuardDoesNotAllocate(t *testing.T) {
	for name, o := range map[string]Options{"open": {}, "bound": {ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 2}} {
		g, now := New(o), time.Duration(0)
		if n := testing.AllocsPerRun(5000, func() {
			now += time.Millisecond
			p, _ := g.Acquire(now, Request{})
			g.Release(p, now, AttemptEnd{Status: 200})
			p, _ = g.Acquire(now, Request{})
			g.Release(p, now, AttemptEnd{Status: 503, Key: 1})
			p, _ = g.Acquire(now, Request{})
			g.Abandon(p, now, AttemptEnd{Kind: Abandoned, Closed: true})
			g.CancelWait(now, Request{})
			g.Expire(now)
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
