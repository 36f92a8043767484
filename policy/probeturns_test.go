package policy

import (
	"math/rand/v2"
	"testing"
	"time"
)

// breakerFleet is processes with one upstream, in virtual time: each always has somebody
// waiting, and a probe takes 2 ms. Answers and words take 5 ms.
type breakerFleet struct {
	t      *testing.T
	all    []*breakerProcess
	ledger ProbeTurnLedger
	shared bool
	gone   func(now time.Duration) bool // the engine
	up     func(process int, now time.Duration) bool
	hangs  bool // an upstream that is down does not answer at all
	events []breakerEvent
	now    time.Duration
	probes int
	asks   int
	most   int // probes in flight at once
	under  int
}

type breakerProcess struct {
	*guardHarness
	told   bool
	opened time.Duration // when it was first closed again; 0: not yet
	idle   bool
}

type breakerEvent struct {
	at time.Duration
	do func()
}

func newBreakerFleet(t *testing.T, n int, shared bool, why EndKind) *breakerFleet {
	f := &breakerFleet{t: t, shared: shared, gone: func(time.Duration) bool { return false }}
	f.up = func(int, time.Duration) bool { return false }
	for i := range n {
		d := newGuardHarness(t, GuardOptions{})
		d.g.options.Rand = rand.New(rand.NewPCG(3, uint64(i)))
		d.now = time.Second
		f.all = append(f.all, &breakerProcess{guardHarness: d})
		for range 20 { // whatever it takes to close
			if d.g.State().Breaker == BreakerClosed && d.acquire() == VerdictGo {
				d.end(0, AttemptEnd{Kind: why, Key: uint32(len(d.out) + 1)})
			}
		}
		if d.g.State().Breaker == BreakerClosed {
			t.Fatal("not closed")
		}
	}
	f.now = time.Second
	return f
}

func (f *breakerFleet) after(d time.Duration, do func()) {
	f.events = append(f.events, breakerEvent{f.now + d, do})
}

// run lets time go by, a millisecond at a time.
func (f *breakerFleet) run(d time.Duration) {
	for end := f.now + d; f.now < end; f.now += time.Millisecond {
		var later, due []breakerEvent
		for _, e := range f.events {
			if e.at <= f.now {
				due = append(due, e)
			} else {
				later = append(later, e)
			}
		}
		f.events = later
		for _, e := range due {
			e.do()
		}
		for i, p := range f.all {
			f.step(i, p)
		}
	}
}

func (f *breakerFleet) step(i int, p *breakerProcess) {
	p.now = f.now
	if p.g.State().Breaker == BreakerClosed || p.g.State().Breaker == BreakerSlowStart {
		if p.opened == 0 {
			p.opened = f.now
		}
		if !p.told && f.shared {
			p.told = true
			f.tell(i)
		}
		return
	}
	if p.line == 0 && len(p.out) == 0 && !p.idle {
		p.acquire()
	}
	if p.g.NextEvent() <= f.now {
		p.handleSignal(p.g.Expire(f.now))
		p.dequeue()
	}
	for len(p.out) > 0 {
		f.probe(i, p)
	}
	if f.shared {
		f.askTurn(i, p)
	}
}

// probe sends what was let through.
func (f *breakerFleet) probe(i int, p *breakerProcess) {
	permit := p.out[0]
	p.out = p.out[1:]
	if !permit.Probe() {
		f.t.Fatal("let through an open breaker")
	}
	f.probes++
	f.under++
	f.most = max(f.most, f.under)
	if f.hangs && !f.up(i, f.now) {
		return
	}
	f.after(2*time.Millisecond, func() {
		f.under--
		e := AttemptEnd{Kind: Refused}
		if f.up(i, f.now) {
			e = AttemptEnd{Status: 200}
		}
		p.now = f.now
		p.handleSignal(p.g.Release(permit, f.now, e))
	})
}

func (f *breakerFleet) tell(i int) {
	f.after(5*time.Millisecond, func() {
		if f.gone(f.now) || !f.ledger.MarkUp(f.now) {
			return
		}
		for j, p := range f.all {
			if j != i {
				p.now = f.now
				p.handleSignal(p.g.PeerFoundUp(f.now))
			}
		}
	})
}

func (f *breakerFleet) askTurn(i int, p *breakerProcess) {
	a, due, _ := p.g.RequestProbeTurn(f.now)
	if !due {
		return
	}
	f.asks++
	f.after(3*time.Millisecond, func() {
		if f.gone(f.now) {
			return
		}
		turn := f.ledger.Turn(f.now, uint64(i+1), a)
		f.after(2*time.Millisecond, func() { p.now = f.now; p.handleSignal(p.g.ApplyProbeTurn(f.now, turn)) })
	})
}

// allClosed is when the last one was open.
func (f *breakerFleet) allClosed() (last time.Duration) {
	for i, p := range f.all {
		if p.opened == 0 {
			f.t.Fatalf("process %d is not open", i)
		}
		last = max(last, p.opened)
	}
	return last
}

// outage is 20 s of it, and when the upstream is up again after that.
func (f *breakerFleet) outage() (back time.Duration) {
	back = f.now + 20*time.Second
	was := f.up
	f.up = func(i int, now time.Duration) bool { return now >= back || was(i, now) }
	f.run(20 * time.Second)
	return back
}

// Fifty that lost the same upstream probe it about as often as one does, and all
// have it again as soon.
func TestAFleetProbesByTurns(t *testing.T) {
	one, alone, shared := newBreakerFleet(t, 1, false, Refused), newBreakerFleet(t, 50, false, Refused), newBreakerFleet(t, 50, true, Refused)
	var probes [3]int
	for i, f := range []*breakerFleet{one, alone, shared} {
		back := f.outage()
		probes[i] = f.probes
		f.run(time.Second)
		t.Logf("%d processes, shared %v: %d probes in 20 s, %d in the second after, %d questions, open after %v", len(f.all), f.shared, probes[i], f.probes-probes[i], f.asks, f.allClosed()-back)
		if late := f.allClosed() - back; late > 400*time.Millisecond {
			t.Errorf("open %v after the upstream", late)
		}
	}
	if probes[2] > 3*probes[0] || probes[1] < 40*probes[0] {
		t.Errorf("probes of one, of fifty and of fifty by turns: %v", probes)
	}
	if shared.most > 4 {
		t.Errorf("%d probes at once", shared.most)
	}
	if most := 50 * 20 * 4; shared.asks > most {
		t.Errorf("%d questions, at most %d", shared.asks, most)
	}
}

// Without an engine, from the start or from then on, each probes by its own rule.
func TestBreakersWithoutAnEngine(t *testing.T) {
	alone := newBreakerFleet(t, 20, false, Refused)
	alone.run(10 * time.Second)
	for name, goes := range map[string]time.Duration{"never there": 0, "gone": 10 * time.Second} {
		f := newBreakerFleet(t, 20, true, Refused)
		f.gone = func(now time.Duration) bool { return now >= time.Second+goes }
		f.run(goes + time.Second)
		before := f.probes
		f.run(10 * time.Second)
		if n := f.probes - before; n < alone.probes*9/10 {
			t.Errorf("%s: %d probes in 10 s, alone %d", name, n, alone.probes)
		}
		back := f.outage()
		f.run(time.Second)
		if late := f.allClosed() - back; late > 200*time.Millisecond {
			t.Errorf("%s: open %v after the upstream", name, late)
		}
	}
}

// Who ends in its turn, or has lost the way to the upstream, or has nobody to
// probe for, delays the others by a turn.
func TestAProberThatIsOfNoUse(t *testing.T) {
	for name, spoil := range map[string]func(f *breakerFleet, i int){
		"ended": func(f *breakerFleet, i int) {
			f.all[i] = &breakerProcess{guardHarness: newGuardHarness(t, GuardOptions{}), opened: 1, told: true} // with a closed breaker, so it asks nothing
		},
		"cut off": func(f *breakerFleet, i int) {
			was := f.up
			f.up = func(j int, now time.Duration) bool { return j != i && was(j, now) }
			f.all[i].opened = 1 // it is not waited for
		},
	} {
		for seed := range 5 {
			f := newBreakerFleet(t, 10, true, Refused)
			back := f.now + 5*time.Second + time.Duration(seed)*130*time.Millisecond
			f.up = func(_ int, now time.Duration) bool { return now >= back }
			f.run(back - f.now)
			spoil(f, int(f.ledger.owner-1))
			f.run(3 * time.Second)
			if late := f.allClosed() - back; late > ProbeTurnDuration+400*time.Millisecond {
				t.Errorf("%s: open %v after the upstream", name, late)
			}
		}
	}
	f := newBreakerFleet(t, 10, true, TimedOut)
	for _, p := range f.all[1:] {
		p.idle = true
	}
	back := f.outage()
	f.run(time.Second)
	if late := f.all[0].opened - back; late < 0 || late > 700*time.Millisecond {
		t.Errorf("beside nine idle ones: open %v after the upstream", late)
	}
}

// A word that it is another's turn holds nobody for longer than the caps, however often it comes;
// and a word that the upstream is up, however often it comes, closes nothing and brings
// no more probes than a process alone sends.
func TestHostileProbeTurnGrants(t *testing.T) {
	another := func(p *breakerProcess) {
		p.g.RequestProbeTurn(p.now)
		p.handleSignal(p.g.ApplyProbeTurn(p.now, ProbeTurnGrant{TurnOfAnother, time.Hour}))
	}
	up := func(p *breakerProcess) { p.handleSignal(p.g.PeerFoundUp(p.now)) }
	over := func(p *breakerProcess) {
		p.handleSignal(p.g.ApplyProbeTurn(p.now, ProbeTurnGrant{Owner: TurnUpstreamUp}))
	}
	alone := newBreakerFleet(t, 1, false, Refused)
	alone.run(60 * time.Second)
	for name, tc := range map[string]struct {
		words       []func(p *breakerProcess)
		least, most int
	}{
		"another's turn": {[]func(p *breakerProcess){another}, 5, 20},
		"up":             {[]func(p *breakerProcess){up, over}, alone.probes * 8 / 10, alone.probes * 11 / 10},
		"both":           {[]func(p *breakerProcess){another, up, over}, alone.probes * 8 / 10, alone.probes * 11 / 10},
		"nonsense": {[]func(p *breakerProcess){func(p *breakerProcess) {
			p.handleSignal(p.g.ApplyProbeTurn(p.now, ProbeTurnGrant{TurnOwner(9), -time.Hour}))
			p.handleSignal(p.g.ApplyProbeTurn(p.now, ProbeTurnGrant{TurnOurs, -time.Hour}))
		}}, 5, alone.probes * 11 / 10},
	} {
		f := newBreakerFleet(t, 1, false, Refused)
		p := f.all[0]
		var last, longest time.Duration
		for n := 0; f.now < 61*time.Second; n++ {
			before := f.probes
			f.run(time.Millisecond)
			p.now = f.now
			tc.words[n%len(tc.words)](p)
			if f.probes > before {
				longest, last = max(longest, f.now-last), f.now
			}
		}
		if f.probes < tc.least || f.probes > tc.most || longest > probeDelayMax+ProbeTurnDuration || p.opened != 0 {
			t.Errorf("%s: %d probes in a minute, want %d to %d; longest time without %v; open at %v", name, f.probes, tc.least, tc.most, longest, p.opened)
		}
	}
}

// A probe that was lost without a word is given up when another process found the
// upstream up, but no more often than it would be if nobody heard its response.
func TestAHungProbeWhenOthersFoundTheUpstreamUp(t *testing.T) {
	f := newBreakerFleet(t, 1, false, TimedOut)
	f.hangs = true
	f.run(time.Second)
	p := f.all[0]
	if f.probes != 1 {
		t.Fatalf("%d probes", f.probes)
	}
	for range 60_000 {
		p.now = f.now
		p.handleSignal(p.g.PeerFoundUp(f.now))
		f.run(time.Millisecond)
	}
	if f.probes < 5 || f.probes > 10 {
		t.Errorf("%d probes in a minute of words that it is up", f.probes)
	}
	f.up = func(int, time.Duration) bool { return true }
	p.handleSignal(p.g.PeerFoundUp(f.now))
	f.run(31 * time.Second)
	f.allClosed()
}

// While a probe hangs, the turn goes on.
func TestATurnGoesOnWhileItsProbeHangs(t *testing.T) {
	f := newBreakerFleet(t, 10, true, Refused)
	f.hangs = true
	f.run(probeDelayFirst / 2)
	probing := 0
	for _, p := range f.all {
		probing += int(min(p.g.State().Probes, 1))
	}
	if probing != 1 {
		t.Errorf("%d processes probe one upstream that does not answer", probing)
	}
}

// a closed breaker asks nothing and heeds nothing.
func TestAClosedBreakerTakesNoTurns(t *testing.T) {
	g := NewGuard(GuardOptions{})
	if _, due, next := g.RequestProbeTurn(0); due || next != Forever {
		t.Error("a closed breaker asks")
	}
	if s := g.PeerFoundUp(0) | g.ApplyProbeTurn(0, ProbeTurnGrant{TurnOfAnother, time.Second}); s != 0 || !g.BreakerClosed() {
		t.Error("a closed breaker heeds a word")
	}
}
