package policy

import (
	"testing"
	"time"
)

// inHand is an open Guard after a second of 1000 good answers, with n requests in flight.
func inHand(n int) (*Guard, []Place, time.Duration) {
	g, now := NewGuard(GuardOptions{Rand: seeded(1), Connects: true}), time.Duration(0)
	for range 1000 {
		p, _ := g.Enter(now, Request{})
		now += time.Millisecond
		g.Leave(p, now, Ending{Kind: Answered, Status: 200, Key: 1})
	}
	places := make([]Place, n)
	for i := range places {
		places[i], _ = g.Enter(now, Request{})
	}
	return g, places, now + 5*time.Millisecond
}

func TestTheBreakerOpensWhenAllInFlightIsLostAtOnce(t *testing.T) {
	for _, n := range []int{burstLeast, 30, 1000} {
		g, places, now := inHand(n)
		for i, p := range places {
			if s := g.State(); s.Gate != GateOpen && i < burstLeast {
				t.Errorf("%d in flight: %v after %d were lost", n, s.Gate, i)
			}
			g.Leave(p, now, Ending{Kind: Reset, Key: 1})
		}
		s := g.State()
		if s.Gate == GateOpen || s.ClosedBy != ClosedByLost {
			t.Errorf("%d in flight: %v by %v after all were lost", n, s.Gate, s.ClosedBy)
		}
		if at := g.NextEvent(); at > now {
			t.Errorf("%d in flight: the probe is due in %v, want at once", n, at-now)
		}
	}
}

func TestLosingSomeOfWhatIsInFlightOpensNothing(t *testing.T) {
	for _, tc := range []struct {
		name     string
		n, lost  int
		answered bool // the others, in turn
	}{
		{"half of them", 200, 100, true},
		{"a fifth, the others still in flight", 40, burstMost / 2, false},
		{"as few as the budget repeats", burstLeast - 1, burstLeast - 1, false},
	} {
		g, places, now := inHand(tc.n)
		for i := range tc.lost {
			if tc.answered {
				g.Leave(places[tc.n-1-i], now, Ending{Kind: Answered, Status: 200, Key: 1})
			}
			g.Leave(places[i], now, Ending{Kind: Reset, Key: 1})
		}
		if s := g.State(); s.Gate != GateOpen {
			t.Errorf("%s: %v by %v", tc.name, s.Gate, s.ClosedBy)
		}
		if _, losing := g.Losing(now); losing == tc.answered {
			t.Errorf("%s: losing %v", tc.name, losing)
		}
		if _, losing := g.Losing(now + burstGap); losing {
			t.Errorf("%s: losing for ever", tc.name)
		}
	}
}

// Who sends one failing request after the other loses none that was in flight
// when the first of them failed.
func TestRequestsThatAreLostOneAfterAnotherAreNoBurst(t *testing.T) {
	g, _, now := inHand(0)
	for range 15 {
		p, _ := g.Enter(now, Request{})
		now += time.Millisecond
		g.Leave(p, now, Ending{Kind: Reset, Key: 1})
	}
	if s := g.State(); s.Gate != GateOpen || s.Closed[ClosedByLost] != 0 {
		t.Errorf("%v by %v", s.Gate, s.ClosedBy)
	}
}
