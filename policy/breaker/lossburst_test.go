package breaker

import (
	"testing"
	"time"
)

// guardInFlight returns a Guard with a closed breaker after a second of 1000 good responses, with n
// requests in flight.
func guardInFlight(n int) (*Guard, []Permit, time.Duration) {
	g, now := New(Options{Rand: seeded(1)}), time.Duration(0)
	for range 1000 {
		p, _ := g.Acquire(now, Request{})
		now += time.Millisecond
		g.Release(p, now, AttemptEnd{Kind: Responded, Status: 200, Key: 1})
	}
	permits := make([]Permit, n)
	for i := range permits {
		permits[i], _ = g.Acquire(now, Request{})
	}
	return g, permits, now + 5*time.Millisecond
}

func TestTheBreakerOpensWhenAllInFlightIsLostAtOnce(t *testing.T) {
	for _, n := range []int{several, 30, 1000} {
		g, permits, now := guardInFlight(n)
		for i, p := range permits {
			if s := g.State(); s.Breaker != Closed && i < several || s.Breaker == Closed && i >= many {
				t.Errorf("%d in flight: %v after %d were lost", n, s.Breaker, i)
			}
			g.Release(p, now, AttemptEnd{Kind: Reset, Key: 1})
		}
		s := g.State()
		if s.Breaker == Closed || s.OpenedBy != OpenedByLost {
			t.Errorf("%d in flight: %v by %v after all were lost", n, s.Breaker, s.OpenedBy)
		}
		if at := g.NextEvent(); at > now {
			t.Errorf("%d in flight: the probe is due in %v, want at once", n, at-now)
		}
	}
}

// One client whose requests fail quickly does not make a single lost connection the loss of all.
func TestFailuresOfOtherKindsAreNoLosses(t *testing.T) {
	g, permits, now := guardInFlight(many)
	for _, p := range permits[1:] {
		g.Release(p, now, AttemptEnd{Kind: Responded, Status: 502, Key: 2})
	}
	g.Release(permits[0], now, AttemptEnd{Kind: Reset, Key: 1})
	if s := g.State(); s.Breaker != Closed {
		t.Errorf("%v by %v after %d times 502 and one lost connection", s.Breaker, s.OpenedBy, many-1)
	}
}

// A failure shortly before a loss does not hide it, where few responses come.
func TestALossIsFoundAfterAnotherFailure(t *testing.T) {
	for name, end := range map[string]AttemptEnd{
		"a lost connection": {Kind: Reset, Key: 2},
		"503":               {Kind: Responded, Status: 503, Key: 2},
		"500":               {Kind: Responded, Status: 500, Key: 2},
	} {
		g, now := New(Options{Rand: seeded(1)}), time.Duration(0)
		for range 30 {
			p, _ := g.Acquire(now, Request{})
			now += 300 * time.Millisecond
			g.Release(p, now, AttemptEnd{Kind: Responded, Status: 200, Key: 1})
		}
		permits := make([]Permit, 50)
		for i := range permits {
			permits[i], _ = g.Acquire(now, Request{})
		}
		now += 50 * time.Millisecond
		g.Release(permits[0], now, end)
		now += 2 * overdueMin
		for _, p := range permits[1:] {
			g.Release(p, now, AttemptEnd{Kind: Reset, Key: 1})
		}
		if s := g.State(); s.Breaker == Closed || s.OpenedBy != OpenedByLost {
			t.Errorf("%s: %v by %v", name, s.Breaker, s.OpenedBy)
		}
	}
}

func TestLosingSomeOfWhatIsInFlightOpensNothing(t *testing.T) {
	for _, tc := range []struct {
		name     string
		n, lost  int
		answered bool // the ends of the others, in turn
	}{
		{"half of them", 200, 100, true},
		{"a fifth, the others still in flight", 40, many / 2, false},
		{"as few as the budget retries", several - 1, several - 1, false},
	} {
		g, permits, now := guardInFlight(tc.n)
		for i := range tc.lost {
			if tc.answered {
				g.Release(permits[tc.n-1-i], now, AttemptEnd{Kind: Responded, Status: 200, Key: 1})
			}
			g.Release(permits[i], now, AttemptEnd{Kind: Reset, Key: 1})
		}
		if s := g.State(); s.Breaker != Closed {
			t.Errorf("%s: %v by %v", tc.name, s.Breaker, s.OpenedBy)
		}
		if losing := g.LosingInFlight(now); losing == tc.answered {
			t.Errorf("%s: losing %v", tc.name, losing)
		}
		if g.LosingInFlight(now + overdueMin) {
			t.Errorf("%s: losing for ever", tc.name)
		}
	}
}

// If a client sends one failing request after another, none of them was in flight when the first
// one failed.
func TestRequestsThatAreLostOneAfterAnotherAreNoBurst(t *testing.T) {
	g, _, now := guardInFlight(0)
	for range 15 {
		p, _ := g.Acquire(now, Request{})
		now += time.Millisecond
		g.Release(p, now, AttemptEnd{Kind: Reset, Key: 1})
	}
	if s := g.State(); s.Breaker != Closed || s.Opened[OpenedByLost] != 0 {
		t.Errorf("%v by %v", s.Breaker, s.OpenedBy)
	}
}

// What is lost after the breaker opened belongs to the burst that opened it. In slow start the upstream
// is another process, which one late loss does not blame.
func TestALateLossOfABurstDoesNotOpenTheBreakerAgain(t *testing.T) {
	g, permits, now := guardInFlight(30)
	for _, p := range permits[:27] {
		g.Release(p, now, AttemptEnd{Kind: Reset, Key: 1})
	}
	g.Expire(now)
	probe, due := g.Probe(now)
	if !due {
		t.Fatal("no probe is due")
	}
	g.Release(probe, now, AttemptEnd{Kind: Connected})
	if s := g.State(); s.Breaker != SlowStart || s.OpenedBy != OpenedByLost || s.SlowStarts != 1 {
		t.Fatalf("%+v", s)
	}
	for _, p := range permits[27:] {
		g.Release(p, now, AttemptEnd{Kind: Reset, Key: 1})
	}
	if s := g.State(); s.Breaker != SlowStart {
		t.Errorf("%v by %v", s.Breaker, s.OpenedBy)
	}
}

// Without a breaker nobody waits for it to open.
func TestWithoutABreakerNothingIsAwaitedAfterALoss(t *testing.T) {
	g := New(Options{NoBreaker: true})
	for range 5 {
		p, _ := g.Acquire(0, Request{})
		g.Release(p, time.Millisecond, AttemptEnd{Kind: Reset})
	}
	if g.LosingInFlight(time.Millisecond) {
		t.Error("losing")
	}
}
