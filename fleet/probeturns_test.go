package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/policy"
)

// The script and policy.ProbeTurnLedger are one rule. Time passes between the calls, so what is
// left may differ by that, and near the end of a turn so may whose it is.
func TestTheTurnsScriptIsTheLedger(t *testing.T) {
	s := enginetest.Start(t)
	all := []*process{joined(t, s), joined(t, s), joined(t, s)}
	r := rand.New(rand.NewPCG(4, 5))
	var ledger policy.ProbeTurnLedger
	began, same, whose := time.Now(), 0, map[policy.TurnOwner]int{}
	for n := range 300 {
		i, a := r.IntN(len(all)), policy.ProbeTurnRequest{Key: 1, WantsTurn: r.IntN(3) > 0, ProbePending: r.IntN(6) == 0}
		before := time.Since(began)
		got := all[i].turn(a)
		took := time.Since(began) - before
		want := ledger.Turn(time.Since(began), uint64(i+1), a)
		switch d := (got.Remaining - want.Remaining).Abs(); {
		case got.Owner == want.Owner && d <= took+50*time.Millisecond:
			same++
			whose[got.Owner]++
		default: // the turn ended between the two: both begin anew
			s.Do("DEL", all[0].probeTurnKey(1))
			ledger = policy.ProbeTurnLedger{}
		}
		if n%20 == 19 {
			all[i].UpstreamFoundUp(1)
			eventually(t, "told", func() bool { return s.Do("GET", all[0].probeTurnKey(1)) == "up" })
			ledger.MarkUp(time.Since(began))
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
	for _, w := range []policy.TurnOwner{policy.TurnOfNobody, policy.TurnOurs, policy.TurnOfAnother, policy.TurnUpstreamUp} {
		if whose[w] == 0 {
			t.Errorf("never %d: %v", w, whose)
		}
	}
	if same < 270 {
		t.Errorf("%d of 300 answers are the ledger's: %v", same, whose)
	}
}

// The word that an upstream is up is heard by all others, once, however many tell it.
func TestAnUpstreamFoundUpReachesTheOthers(t *testing.T) {
	s := enginetest.Start(t)
	a, b, c := joined(t, s), joined(t, s), joined(t, s)
	a.UpstreamFoundUp(7)
	a.UpstreamFoundUp(7)
	c.UpstreamFoundUp(7)
	b.UpstreamFoundUp(8)
	eventually(t, "heard", func() bool { return b.foundUpCount(7) == 1 && a.foundUpCount(8) == 1 && c.foundUpCount(8) == 1 })
	eventually(t, "told", func() bool {
		return a.Stats().BreakerClosedSent == 2 && b.Stats().BreakerClosedSent == 1 && c.Stats().BreakerClosedSent == 1
	})
	if a.foundUpCount(7)+c.foundUpCount(7) > 1 || b.foundUpCount(8) != 0 {
		t.Errorf("heard %d and %d times of what was told by them", a.foundUpCount(7), c.foundUpCount(7))
	}
	if w := b.turn(policy.ProbeTurnRequest{Key: 9, WantsTurn: true}).Owner; w != policy.TurnOurs {
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
	key := a.probeTurnKey(1)
	for _, value := range []string{"", "x", "up ", "abc:", "abc:99999999999999999999", "abc:-1", ":5", "abc:1e300"} {
		s.Do("SET", key, value)
		if g := a.turn(policy.ProbeTurnRequest{Key: 1, WantsTurn: true}); g.Owner != policy.TurnOurs || g.Remaining > policy.ProbeTurnDuration {
			t.Errorf("%q: %+v", value, g)
		}
		if left := s.Do("PTTL", key).(int64); left < 1 || left > policy.ProbeTurnDuration.Milliseconds() {
			t.Errorf("%q: expires in %d ms", value, left)
		}
	}
	for _, message := range []string{"", "x", "a g", "a 1 2", "a -1", "a 10000000000000000"} {
		s.Do("PUBLISH", a.foundUpChannel(), message)
	}
	s.Do("PUBLISH", a.foundUpChannel(), "x 5")
	eventually(t, "heard", func() bool { return a.foundUpCount(5) == 1 && b.foundUpCount(5) == 1 })
	if n := a.Stats().Errors; n < 6 {
		t.Errorf("%d of six messages taken for errors", n)
	}
	if n := a.Stats().BreakerClosedReceived; n != 1 {
		t.Errorf("%d words learnt", n)
	}
}

// Without an engine no question is put, and nobody is held up.
func TestTurnsWithoutAnEngine(t *testing.T) {
	s := enginetest.Start(t)
	p := joined(t, s)
	s.Kill()
	eventually(t, "lost", func() bool { return !p.Stats().Up })
	began := time.Now()
	for range 10 * foundUpBuffer {
		p.UpstreamFoundUp(1)
		p.ProbeTurnWanted()
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("telling took %v", d)
	}
	if n := p.Stats().BreakerClosedDropped; n == 0 {
		t.Error("nothing dropped")
	}
	p.mu.Lock()
	p.turnRequests = []policy.ProbeTurnRequest{{Key: 1, WantsTurn: true}}
	p.mu.Unlock()
	p.ProbeTurnWanted()
	eventually(t, "taken", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.turnRequests == nil })
	time.Sleep(50 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.turns) != 0 {
		t.Errorf("turns of nobody: %v", p.turns)
	}
}
