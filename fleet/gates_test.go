package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/policy"
)

// The script and policy.GateLedger are one rule. Time passes between the calls, so what is
// left may differ by that, and near the end of a turn so may whose it is.
func TestTheTurnsScriptIsTheLedger(t *testing.T) {
	s := enginetest.Start(t)
	all := []*process{joined(t, s), joined(t, s), joined(t, s)}
	r := rand.New(rand.NewPCG(4, 5))
	var ledger policy.GateLedger
	began, same, whose := time.Now(), 0, map[policy.Turn]int{}
	for n := range 300 {
		i, a := r.IntN(len(all)), policy.GateAsk{Key: 1, Takes: r.IntN(3) > 0, Hangs: r.IntN(6) == 0}
		before := time.Since(began)
		got := all[i].turn(a)
		took := time.Since(began) - before
		want := ledger.Turn(time.Since(began), uint64(i+1), a)
		switch d := (got.Left - want.Left).Abs(); {
		case got.Whose == want.Whose && d <= took+50*time.Millisecond:
			same++
			whose[got.Whose]++
		default: // the turn ended between the two: both begin anew
			s.Do("DEL", all[0].gateKey(1))
			ledger = policy.GateLedger{}
		}
		if n%20 == 19 {
			all[i].GateOpened(1)
			soon(t, "told", func() bool { return s.Do("GET", all[0].gateKey(1)) == "up" })
			ledger.Opened(time.Since(began))
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
	for _, w := range []policy.Turn{policy.TurnOfNobody, policy.TurnOurs, policy.TurnOfAnother, policy.TurnOver} {
		if whose[w] == 0 {
			t.Errorf("never %d: %v", w, whose)
		}
	}
	if same < 270 {
		t.Errorf("%d of 300 answers are the ledger's: %v", same, whose)
	}
}

// The word that an upstream is up is heard by all others, once, however many tell it.
func TestTheWordThatAGateOpened(t *testing.T) {
	s := enginetest.Start(t)
	a, b, c := joined(t, s), joined(t, s), joined(t, s)
	a.GateOpened(7)
	a.GateOpened(7)
	c.GateOpened(7)
	b.GateOpened(8)
	soon(t, "heard", func() bool { return b.heardOf(7) == 1 && a.heardOf(8) == 1 && c.heardOf(8) == 1 })
	soon(t, "told", func() bool {
		return a.Stats().OpenedTold == 2 && b.Stats().OpenedTold == 1 && c.Stats().OpenedTold == 1
	})
	if a.heardOf(7)+c.heardOf(7) > 1 || b.heardOf(8) != 0 {
		t.Errorf("heard %d and %d times of what was told by them", a.heardOf(7), c.heardOf(7))
	}
	if w := b.turn(policy.GateAsk{Key: 9, Takes: true}).Whose; w != policy.TurnOurs {
		t.Error(w)
	}
	if n := b.Stats().TurnsOurs; n != 1 {
		t.Errorf("%d turns counted", n)
	}
}

// What is no turn is nobody's, one that ends far away too, and every key ends soon.
func TestHostileTurns(t *testing.T) {
	s := enginetest.Start(t)
	a, b := joined(t, s), joined(t, s)
	key := a.gateKey(1)
	for _, value := range []string{"", "x", "up ", "abc:", "abc:99999999999999999999", "abc:-1", ":5", "abc:1e300"} {
		s.Do("SET", key, value)
		if g := a.turn(policy.GateAsk{Key: 1, Takes: true}); g.Whose != policy.TurnOurs || g.Left > policy.GateTurnLasts {
			t.Errorf("%q: %+v", value, g)
		}
		if left := s.Do("PTTL", key).(int64); left < 1 || left > policy.GateTurnLasts.Milliseconds() {
			t.Errorf("%q: expires in %d ms", value, left)
		}
	}
	for _, message := range []string{"", "x", "a g", "a 1 2", "a -1", "a 10000000000000000"} {
		s.Do("PUBLISH", a.openedChannel(), message)
	}
	s.Do("PUBLISH", a.openedChannel(), "x 5")
	soon(t, "heard", func() bool { return a.heardOf(5) == 1 && b.heardOf(5) == 1 })
	if n := a.Stats().Errors; n < 6 {
		t.Errorf("%d of six messages taken for errors", n)
	}
	if n := a.Stats().OpenedLearnt; n != 1 {
		t.Errorf("%d words learnt", n)
	}
}

// Without an engine no question is put, and nobody is held up.
func TestTurnsWithoutAnEngine(t *testing.T) {
	s := enginetest.Start(t)
	p := joined(t, s)
	s.Kill()
	soon(t, "lost", func() bool { return !p.Stats().Up })
	began := time.Now()
	for range 10 * openedRoom {
		p.GateOpened(1)
		p.GateWanted()
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("telling took %v", d)
	}
	if n := p.Stats().OpenedDropped; n == 0 {
		t.Error("nothing dropped")
	}
	p.mu.Lock()
	p.gateAsks = []policy.GateAsk{{Key: 1, Takes: true}}
	p.mu.Unlock()
	p.GateWanted()
	soon(t, "taken", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.gateAsks == nil })
	time.Sleep(50 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.turns) != 0 {
		t.Errorf("turns of nobody: %v", p.turns)
	}
}
