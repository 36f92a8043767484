package policy

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// desk is a Guard with its line, used as a proxy uses it, on one goroutine.
type desk struct {
	t    *testing.T
	g    *Guard
	now  time.Duration
	out  []Place // taken and waited for
	line int
	keys []uint32 // of those in line whose URL is known, who came last
}

func newDesk(t *testing.T, o GuardOptions) *desk {
	t.Helper()
	o.Rand = rand.New(rand.NewPCG(1, 2))
	return &desk{t: t, g: NewGuard(o)}
}

// ask enters, or stands in line.
func (d *desk) ask() Verdict {
	p, v := d.g.Enter(d.now, Request{})
	if v <= VerdictProbe {
		d.out = append(d.out, p)
		return v
	}
	d.line++
	d.pump()
	return v
}

func (d *desk) pump() {
	for d.line > 0 {
		p, v := d.g.Next(d.now, d.head())
		if v > VerdictProbe {
			return
		}
		d.line--
		d.keys = d.keys[:max(len(d.keys)-1, 0)]
		d.out = append(d.out, p)
	}
}

func (d *desk) head() (r Request) {
	if n := len(d.keys); n > 0 {
		r.Key = d.keys[n-1]
	}
	return r
}

// heed does what a signal asks for and checks that nobody is forgotten.
func (d *desk) heed(s Signal) {
	d.t.Helper()
	if s&SignalWake != 0 {
		d.pump()
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	if d.g.waiting != d.line {
		d.t.Fatalf("%d wait, the guard counts %d", d.line, d.g.waiting)
	}
	if d.g.waiting > 0 && d.g.verdictHead(d.now) <= VerdictProbe && d.g.eventAt > 0 {
		d.t.Fatal("somebody waits who could be let in, and nothing says so")
	}
}

// end ends the i-th place.
func (d *desk) end(i int, e Ending) {
	d.t.Helper()
	p := d.out[i]
	d.out = append(d.out[:i], d.out[i+1:]...)
	d.heed(d.g.Leave(p, d.now, e))
}

// pass lets time go by, with the events that come due.
func (d *desk) pass(t time.Duration) {
	d.t.Helper()
	for end := d.now + t; ; {
		at := d.g.NextEvent()
		if at > end {
			d.now = end
			return
		}
		d.now = max(d.now, at)
		d.heed(d.g.Expire(d.now))
		if d.g.NextEvent() <= d.now {
			d.now += time.Microsecond
		}
	}
}

// serve lets n requests a second be answered after latency, one by one, for d.
func (d *desk) serve(t time.Duration, perSecond int, latency time.Duration) {
	d.t.Helper()
	gap := time.Second / time.Duration(perSecond)
	type due struct {
		p  Place
		at time.Duration
	}
	var under []due
	for end := d.now + t; d.now < end; d.now += gap {
		for len(under) > 0 && under[0].at <= d.now {
			d.heed(d.g.Leave(under[0].p, under[0].at, Ending{Status: 200, Key: 7}))
			under = under[1:]
		}
		p, v := d.g.Enter(d.now, Request{})
		if v != VerdictGo {
			d.t.Fatalf("at %v: verdict %d before a healthy upstream", d.now, v)
		}
		under = append(under, due{p, d.now + latency})
	}
	for _, u := range under {
		d.now = max(d.now, u.at)
		d.heed(d.g.Leave(u.p, d.now, Ending{Status: 200}))
	}
}

// untilClosed asks a hundred times a second, without an answer, until the gate is closed.
func (d *desk) untilClosed() {
	d.t.Helper()
	for end := d.now + 3*time.Second; d.g.State().Gate == GateOpen; d.pass(10 * time.Millisecond) {
		if d.now > end {
			d.t.Fatal("not closed within three seconds of silence")
		}
		d.ask()
	}
}

func (d *desk) want(state GateState, why ClosedBy) {
	d.t.Helper()
	if s := d.g.State(); s.Gate != state || s.ClosedBy != why {
		d.t.Fatalf("at %v: gate %v by %v, want %v by %v", d.now, s.Gate, s.ClosedBy, state, why)
	}
}

func TestHealthyUpstreamIsLeftAlone(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.serve(time.Minute, 100, 100*time.Millisecond)
	d.want(GateOpen, ClosedByNothing)
	s := d.g.State()
	if s.Limit != 0 || s.InFlight != 0 || s.Bound != 0 {
		t.Errorf("%+v", s)
	}
	if s.Remembered < 9 || s.Remembered > 12 {
		t.Errorf("remembered %v, want 10", s.Remembered)
	}
	about(t, "usual", s.Usual, 100*time.Millisecond)
}

func TestOneRefusalClosesAndAProbeOpens(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.ask()
	d.end(0, Ending{Kind: Refused})
	d.want(GateClosed, ClosedByRefused)
	for range 3 {
		if v := d.ask(); v != VerdictHold {
			t.Fatalf("verdict %d while closed", v)
		}
	}
	d.pass(30 * time.Millisecond)
	d.want(GateHalfOpen, ClosedByRefused)
	if len(d.out) != 1 || !d.out[0].Probe() {
		t.Fatalf("%d sent, want one probe", len(d.out))
	}
	d.end(0, Ending{Kind: Refused})
	d.want(GateClosed, ClosedByRefused)
	d.pass(60 * time.Millisecond)
	d.end(0, Ending{Status: 200})
	d.want(GateRamp, ClosedByRefused)
	if len(d.out) != 1 || d.line != 0 {
		t.Errorf("%d sent and %d in line after the probe's success", len(d.out), d.line)
	}
}

func TestAConnectionOpensWhatRefused(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.ask()
	d.end(0, Ending{Kind: Refused})
	if _, ok := d.g.Probe(d.now); ok {
		t.Fatal("a probe before it is due")
	}
	d.now += 25 * time.Millisecond
	p, ok := d.g.Probe(d.now)
	if !ok || !p.Probe() {
		t.Fatal("no probe when it is due")
	}
	if _, again := d.g.Probe(d.now); again {
		t.Fatal("two probes at once")
	}
	if v := d.ask(); v != VerdictHold {
		t.Fatalf("verdict %d beside a probe", v)
	}
	d.heed(d.g.Leave(p, d.now, Ending{Kind: Connected}))
	if len(d.out) != 1 || d.out[0].Probe() {
		t.Fatalf("%d sent after the connection came, want the one who waited", len(d.out))
	}
	d.want(GateRamp, ClosedByRefused)
}

func TestWhatClosesTheGate(t *testing.T) {
	for _, tc := range []struct {
		name string
		e    Ending
		n    int // of 100 attempts; the others are answered with 200
		want bool
	}{
		{"503", Ending{Status: 503}, 95, true},
		{"502", Ending{Status: 502}, 95, true},
		{"504", Ending{Status: 504}, 95, true},
		{"resets", Ending{Kind: Reset}, 95, true},
		{"attempt timeouts", Ending{Kind: TimedOut}, 95, true},
		{"half of them 503", Ending{Status: 503}, 50, false},
		{"500", Ending{Status: 500}, 100, false},
		{"429", Ending{Status: 429}, 100, false},
		{"404", Ending{Status: 404}, 100, false},
		{"505", Ending{Status: 505}, 100, false},
		{"unsent", Ending{Kind: Unsent}, 100, false},
	} {
		d := newDesk(t, GuardOptions{})
		d.serve(5*time.Second, 50, 10*time.Millisecond)
		for i := 0; i < 400 && d.g.State().Gate == GateOpen; i++ {
			d.now += 10 * time.Millisecond
			d.ask()
			e := tc.e
			if i%100 >= tc.n {
				e = Ending{Status: 200}
			}
			d.end(len(d.out)-1, e)
		}
		if closed := d.g.State().Gate != GateOpen; closed != tc.want {
			t.Errorf("%s: closed %v", tc.name, closed)
		}
	}
}

func TestTooFewFailuresDoNotCloseIt(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	for range 19 {
		d.ask()
		d.end(0, Ending{Status: 503})
	}
	d.want(GateOpen, ClosedByNothing)
	d.ask()
	d.end(0, Ending{Status: 503})
	d.want(GateClosed, ClosedByFailing)
}

// One URL that always fails, hammered by a caller, among healthy ones.
func TestOneBadURLDoesNotCloseIt(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.serve(10*time.Second, 20, 10*time.Millisecond)
	for i := range 3000 {
		d.now += 5 * time.Millisecond
		d.ask()
		e := Ending{Status: 503, Key: 13}
		if i%20 == 0 {
			e = Ending{Status: 200, Key: uint32(100 + i)}
		}
		d.end(len(d.out)-1, e)
	}
	d.want(GateOpen, ClosedByNothing)
}

// Callers with two seconds of patience leave long before an attempt timeout.
func TestCallersWhoLeaveLateAreEvidence(t *testing.T) {
	for _, tc := range []struct {
		patience time.Duration
		closes   bool
	}{{2 * time.Second, true}, {5 * time.Millisecond, false}} {
		d := newDesk(t, GuardOptions{})
		d.serve(10*time.Second, 50, 10*time.Millisecond)
		for i := 0; i < 100 && d.g.State().Gate == GateOpen; i++ {
			d.ask()
			p := d.out[len(d.out)-1]
			d.out = d.out[:len(d.out)-1]
			d.now += tc.patience
			d.heed(second(d.g.Abandon(p, d.now, Ending{Kind: Abandoned, Closed: true})))
		}
		if closed := d.g.State().Gate != GateOpen; closed != tc.closes {
			t.Errorf("patience %v: closed %v", tc.patience, closed)
		}
	}
}

func second(_ Place, s Signal) Signal { return s }

func TestAStoppedUpstreamGetsFewRequests(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.untilClosed()
	d.want(GateHalfOpen, ClosedByStall)
	if len(d.out) < 20 || len(d.out) > 55 {
		t.Errorf("%d requests were sent to it", len(d.out))
	}
	if p := d.out[len(d.out)-1]; !p.Probe() {
		t.Error("the last of them is no probe")
	}
	probes := d.g.State().Probes
	d.pass(2500 * time.Millisecond)
	if n := d.g.State().Probes; n != probes {
		t.Errorf("%d probes while one hangs", n)
	}
	// Its late answer counts: any of them does.
	d.end(3, Ending{Status: 200})
	d.want(GateRamp, ClosedByStall)
}

// A probe that is known to be lost makes room for another, once, and is listened
// for all the same.
func TestAProbeThatIsGivenUpMakesRoomForAnother(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	for d.g.State().Probes == 0 {
		d.now += 10 * time.Millisecond
		d.ask()
	}
	first := d.out[len(d.out)-1]
	d.ask()
	if d.line == 0 || !d.g.Hangs(first) {
		t.Fatal("no probe hangs")
	}
	d.heed(d.g.ProbeAgain(d.out[0], d.now)) // no probe
	sent := len(d.out)
	d.heed(d.g.ProbeAgain(first, d.now))
	if n := len(d.out); n != sent+1 || !d.out[sent].Probe() || d.g.Hangs(first) || !d.g.Hangs(d.out[sent]) {
		t.Fatalf("%d sent, want one probe", n-sent)
	}
	d.ask()
	d.heed(d.g.ProbeAgain(first, d.now))
	if n := d.g.State().Probes; n != 2 {
		t.Errorf("%d probes, want 2", n)
	}
	d.end(sent-1, Ending{Status: 200})
	d.want(GateRamp, ClosedByStall)
}

// Late answers say nothing of an upstream that refuses: they may be the last.
func TestLateAnswersDoNotOpenWhatRefuses(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.ask()
	d.ask()
	d.end(0, Ending{Kind: Refused})
	d.end(0, Ending{Status: 200})
	d.want(GateClosed, ClosedByRefused)
}

func TestAnAbandonedAttemptKeepsItsPlace(t *testing.T) {
	d := newDesk(t, GuardOptions{Limit: LimitFixed, Fixed: 1})
	d.ask()
	p, s := d.g.Abandon(d.out[0], d.now, Ending{Kind: Abandoned})
	d.out = nil
	d.heed(s)
	if v := d.ask(); v != VerdictQueue {
		t.Fatalf("verdict %d beside an abandoned attempt and a limit of 1", v)
	}
	if g := d.g.State(); g.InFlight != 1 || g.Abandoned != 1 {
		t.Errorf("%+v", g)
	}
	d.heed(d.g.Leave(p, d.now+time.Millisecond, Ending{Status: 200}))
	if len(d.out) != 1 {
		t.Error("its late answer did not free the place")
	}
}

// Nobody reads on: a bound frees the place.
func TestAnAbandonedPlaceIsFreedByABound(t *testing.T) {
	d := newDesk(t, GuardOptions{Limit: LimitFixed, Fixed: 30})
	d.serve(10*time.Second, 100, 100*time.Millisecond)
	for range 30 {
		d.ask()
	}
	for _, p := range d.out {
		d.heed(second(d.g.Abandon(p, d.now, Ending{Kind: Abandoned, Closed: true})))
	}
	d.out = nil
	if v := d.ask(); v != VerdictQueue {
		t.Fatalf("verdict %d", v)
	}
	d.pass(time.Second)
	if len(d.out) != 0 {
		t.Error("freed within a second")
	}
	d.pass(2 * time.Second)
	if len(d.out) != 1 {
		t.Error("not freed within three seconds, where answers take 100 ms")
	}
}

func TestAProbesSuccessFreesWhatWasAbandoned(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.untilClosed()
	probe := len(d.out) - 1
	var late []Place
	for _, p := range d.out[:probe] {
		q, s := d.g.Abandon(p, d.now, Ending{Kind: Abandoned})
		d.heed(s)
		late = append(late, q)
	}
	d.out = d.out[probe:]
	d.end(0, Ending{Status: 200})
	if s := d.g.State(); s.Abandoned != 0 || s.InFlight != len(d.out) {
		t.Errorf("%d abandoned, %d in flight, %d sent", s.Abandoned, s.InFlight, len(d.out))
	}
	before := d.g.State().InFlight
	for _, p := range late { // they are answered all the same
		d.heed(d.g.Leave(p, d.now, Ending{Status: 200}))
	}
	if s := d.g.State(); s.InFlight < before {
		t.Errorf("%d in flight after %d: a place was given back twice", s.InFlight, before)
	}
}

func TestFixedLimit(t *testing.T) {
	d := newDesk(t, GuardOptions{Limit: LimitFixed, Fixed: 3})
	for i, want := range []Verdict{VerdictGo, VerdictGo, VerdictGo, VerdictQueue, VerdictQueue} {
		if v := d.ask(); v != want {
			t.Errorf("request %d: verdict %d, want %d", i, v, want)
		}
	}
	d.end(0, Ending{Status: 200})
	if len(d.out) != 3 || d.line != 1 {
		t.Errorf("%d sent, %d in line", len(d.out), d.line)
	}
	d.g.Quit(d.now, Request{})
	d.line--
	d.heed(0)
}

func TestWithoutGateNothingIsHeld(t *testing.T) {
	d := newDesk(t, GuardOptions{NoGate: true, Limit: LimitOff})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	for i := range 1000 {
		d.now += 10 * time.Millisecond
		if v := d.ask(); v != VerdictGo {
			t.Fatalf("request %d: verdict %d", i, v)
		}
	}
	for range 500 {
		d.end(0, Ending{Kind: Refused})
		d.end(0, Ending{Status: 503})
	}
	d.want(GateOpen, ClosedByNothing)
}

// Without a gate the adaptive limit is what stands before a stopped upstream.
func TestWithoutGateTheLimitBinds(t *testing.T) {
	d := newDesk(t, GuardOptions{NoGate: true})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	for range 500 {
		d.now += 10 * time.Millisecond
		d.ask()
	}
	if s := d.g.State(); s.Limit == 0 || len(d.out) > 80 {
		t.Errorf("limit %d, %d sent to a stopped upstream", s.Limit, len(d.out))
	}
}

func TestRampGoesUpAndEnds(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	d.ask()
	d.end(0, Ending{Kind: Refused})
	for range 500 {
		d.ask()
	}
	d.pass(50 * time.Millisecond)
	d.end(0, Ending{Status: 200})
	most := 0
	for len(d.out) > 0 {
		most = max(most, len(d.out))
		if s := d.g.State(); s.InFlight > s.Limit {
			t.Fatalf("%d in flight, limit %d", s.InFlight, s.Limit)
		}
		d.pass(100 * time.Millisecond)
		for range len(d.out) {
			d.end(0, Ending{Status: 200})
		}
	}
	if most < 45 || most > 75 {
		t.Errorf("%d at once in the ramp, want about 55", most)
	}
	d.pass(2 * time.Second)
	d.want(GateOpen, ClosedByRefused)
	if s := d.g.State(); s.Limit != 0 {
		t.Errorf("limit %d after the ramp", s.Limit)
	}
}

func TestZeroPlaceIsNone(t *testing.T) {
	g := NewGuard(GuardOptions{})
	if s := g.Leave(Place{}, 0, Ending{Status: 200}); s != 0 {
		t.Errorf("signal %d", s)
	}
	if p, s := g.Abandon(Place{}, 0, Ending{}); s != 0 || p.Taken() {
		t.Errorf("signal %d, taken %v", s, p.Taken())
	}
	if n := g.State().InFlight; n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestGuardOptions(t *testing.T) {
	for _, tc := range []struct {
		o  GuardOptions
		ok bool
	}{
		{GuardOptions{}, true},
		{GuardOptions{Limit: LimitOff, NoGate: true}, true},
		{GuardOptions{Limit: LimitFixed, Fixed: 1}, true},
		{GuardOptions{Limit: LimitFixed, Fixed: maxFixed}, true},
		{GuardOptions{Limit: LimitFixed}, false},
		{GuardOptions{Limit: LimitFixed, Fixed: -1}, false},
		{GuardOptions{Limit: LimitFixed, Fixed: maxFixed + 1}, false},
		{GuardOptions{Limit: 3}, false},
	} {
		if err := tc.o.Validate(); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc.o, err)
		}
		NewGuard(tc.o).Enter(0, Request{})
	}
}

func TestGuardSetsHaveLabels(t *testing.T) {
	seen := map[string]bool{}
	for s := range GateState(NumGateStates) {
		seen[s.String()] = s.Explain() != ""
	}
	for c := range ClosedBy(NumClosedBy) {
		seen[c.String()] = c.Explain() != ""
	}
	if len(seen) != NumGateStates+NumClosedBy || seen["invalid"] || seen[""] {
		t.Errorf("labels: %v", seen)
	}
	if GateState(200).String() != "invalid" || ClosedBy(200).String() != "invalid" {
		t.Error("a value outside the set has a label")
	}
}

// Many goroutines, every way of ending, the gate closing and opening all the
// time: in the end no place is taken, and at no time is there a second probe or
// more under way than the limit allows.
func TestNoPlaceIsLost(t *testing.T) {
	for _, o := range []GuardOptions{{}, {Limit: LimitFixed, Fixed: 5}, {NoGate: true}, {Limit: LimitOff}} {
		h := &hall{g: NewGuard(o), fixed: int64(o.Fixed), line: NewLine[chan Place](50)}
		var workers sync.WaitGroup
		for i := range 8 {
			workers.Go(func() { h.work(rand.New(rand.NewPCG(uint64(i), 9)), 4000) })
		}
		workers.Wait()
		for range 200 { // whoever waits still is let in by time alone
			h.heed(h.g.Expire(h.tick(time.Second)))
		}
		h.g.Expire(h.tick(5 * time.Minute))
		if s := h.g.State(); s.InFlight != 0 || s.Waiting != 0 || s.Abandoned != 0 {
			t.Errorf("%+v: left over: %+v", o, s)
		}
		if h.broken != "" {
			t.Errorf("%+v: %s", o, h.broken)
		}
		t.Logf("%+v", h.g.State())
	}
}

// hall is what the proxy keeps beside a Guard, for several goroutines.
type hall struct {
	g     *Guard
	fixed int64

	mu     sync.Mutex // guards what follows, as the proxy's line has one
	line   *Line[chan Place]
	now    time.Duration
	broken string
}

func (h *hall) tick(d time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += d
	return h.now
}

func (h *hall) heed(s Signal) {
	if s&SignalWake == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pump()
}

func (h *hall) pump() {
	for h.line.Len() > 0 {
		p, v := h.g.Next(h.now, Request{})
		if v > VerdictProbe {
			return
		}
		h.check(v)
		c, _ := h.line.Newest()
		c <- p
	}
}

// check is called with mu held, so that others can only give places back.
func (h *hall) check(v Verdict) {
	if n := int64(h.g.State().InFlight); h.fixed > 0 && v == VerdictGo && n > h.fixed {
		h.broken = "more in flight than the limit"
	}
}

// enter takes a place or waits a little for one.
func (h *hall) enter(r *rand.Rand) (Place, bool) {
	now := h.tick(time.Duration(r.IntN(3)) * time.Millisecond)
	if p, ok := h.g.EnterFast(now); ok {
		return p, true
	}
	h.mu.Lock()
	p, v := h.g.Enter(h.now, Request{})
	if v <= VerdictProbe {
		h.check(v)
		h.mu.Unlock()
		return p, true
	}
	c := make(chan Place, 1)
	ticket, out, dropped := h.line.Push(c)
	if dropped {
		h.g.Quit(h.now, Request{})
		close(out)
	}
	h.mu.Unlock()
	for range r.IntN(20) {
		h.heed(h.g.Expire(h.tick(time.Duration(r.IntN(50)) * time.Millisecond)))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line.Remove(ticket) {
		h.g.Quit(h.now, Request{})
		return Place{}, false
	}
	p, ok := <-c
	return p, ok
}

func (h *hall) work(r *rand.Rand, n int) {
	for range n {
		p, ok := h.enter(r)
		if !ok {
			continue
		}
		now := h.tick(time.Duration(r.IntN(20)) * time.Millisecond)
		switch k := r.IntN(100); {
		case k < 60:
			h.heed(h.g.Leave(p, now, Ending{Status: 200, Key: uint32(k)}))
		case k < 70:
			h.heed(h.g.Leave(p, now, Ending{Status: 503, Key: 3}))
		case k < 71:
			h.heed(h.g.Leave(p, now, Ending{Kind: EndKind(r.IntN(int(numEndKinds)))}))
		case k < 75:
			h.heed(h.g.Leave(p, now, Ending{Kind: Unsent}))
		case k < 85:
			h.heed(second(h.g.Abandon(p, now+3*time.Second, Ending{Kind: Abandoned, Closed: true})))
		default:
			q, s := h.g.Abandon(p, now, Ending{Kind: TimedOut})
			h.heed(s)
			h.heed(h.g.Leave(q, h.tick(time.Duration(r.IntN(200))*time.Millisecond), Ending{Status: 200}))
		}
	}
}

func TestGuardDoesNotAllocate(t *testing.T) {
	for name, o := range map[string]GuardOptions{"open": {}, "bound": {Limit: LimitFixed, Fixed: 2}} {
		g, now := NewGuard(o), time.Duration(0)
		if n := testing.AllocsPerRun(5000, func() {
			now += time.Millisecond
			p, _ := g.Enter(now, Request{})
			g.Leave(p, now, Ending{Status: 200})
			p, _ = g.Enter(now, Request{})
			g.Leave(p, now, Ending{Status: 503, Key: 1})
			p, _ = g.Enter(now, Request{})
			g.Abandon(p, now, Ending{Kind: Abandoned, Closed: true})
			g.Quit(now, Request{})
			g.Expire(now)
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
