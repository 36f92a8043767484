package main

import (
	"testing"
	"time"
)

// ticksOf makes ticks of a run: peace up to 10 s, nothing good up to 20 s, then
// what after gives for each tick.
func ticksOf(length time.Duration, after func(at time.Duration) tick) []tick {
	ticks := make([]tick, length/tickTime)
	for i := range ticks {
		switch at := time.Duration(i) * tickTime; {
		case at < 10*time.Second:
			ticks[i] = tick{Good: 10, AtOnce: 10}
		case at < 20*time.Second:
			ticks[i] = tick{Late: 40}
		default:
			ticks[i] = after(at - 20*time.Second)
		}
	}
	return ticks
}

func TestVerdict(t *testing.T) {
	well := tick{Good: 10, AtOnce: 12}
	for name, c := range map[string]struct {
		after     func(at time.Duration) tick
		good, err float64 // -1: never
		peak      int
	}{
		"back at once": {
			// 95 % of 500 good ones are there after 48 ticks of 10.
			after: func(time.Duration) tick { return well }, good: 4.8, err: 0, peak: 12,
		},
		"never back": {
			after: func(time.Duration) tick { return tick{Late: 40, AtOnce: 20_000} }, good: -1, err: -1, peak: 20_000,
		},
		"a burst counts for the mean": {
			after: func(at time.Duration) tick {
				if at < time.Second {
					return tick{Good: 50, Bad: 50, AtOnce: 60}
				}
				return well
			}, good: 1.0, err: 1.9, peak: 60,
		},
		"errors that come back": {
			after: func(at time.Duration) tick {
				if at == 15*time.Second {
					return tick{Good: 10, Bad: 10}
				}
				return well
			}, good: 4.8, err: 16.0, peak: 12,
		},
		"silence is no success": {
			after: func(time.Duration) tick { return tick{} }, good: -1, err: -1, peak: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(ticksOf(50*time.Second, c.after), 10*time.Second, 20*time.Second)
			if v.Peace != 100 || v.PeaceFails != 0 {
				t.Errorf("peace %v a second, %v failed; want 100, 0", v.Peace, v.PeaceFails)
			}
			check(t, "good again", v.GoodAgain, c.good)
			check(t, "errors under", v.ErrorsUnder, c.err)
			if v.Peak != c.peak {
				t.Errorf("peak %d, want %d", v.Peak, c.peak)
			}
		})
	}
}

func check(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	switch {
	case want < 0 && got != nil:
		t.Errorf("%s after %v s, want never", what, *got)
	case want >= 0 && got == nil:
		t.Errorf("%s never, want after %v s", what, want)
	case want >= 0 && (*got < want-0.2 || *got > want+0.2):
		t.Errorf("%s after %v s, want %v", what, *got, want)
	}
}

func TestSumStaysWithinTheRun(t *testing.T) {
	ticks := []tick{{Good: 1, AtOnce: 5}, {Bad: 2, AtOnce: 7}, {Late: 3, AtOnce: 6}}
	for _, c := range []struct {
		from, to time.Duration
		want     tick
	}{
		{-time.Second, time.Second, tick{1, 2, 3, 7}},
		{tickTime, 2 * tickTime, tick{0, 2, 0, 7}},
		{2 * tickTime, tickTime, tick{}},
		{time.Hour, 2 * time.Hour, tick{}},
	} {
		if got := sum(ticks, c.from, c.to); got != c.want {
			t.Errorf("sum from %v to %v: %+v, want %+v", c.from, c.to, got, c.want)
		}
	}
}

func TestVerdictsAreCompared(t *testing.T) {
	v, o := &verdict{GoodAgain: new(1.5), ErrorsUnder: new(3.0), Peak: 64}, &verdict{GoodAgain: new(1.2), Peak: 70}
	for _, tc := range []struct {
		a, b *verdict
		want string
	}{
		{v, o, "good again +0.3 s, errors under 5% though never in virtual time, peak at the server -6"},
		{o, v, "good again -0.3 s, errors under 5% never, though in virtual time it is, peak at the server +6"},
		{&verdict{}, &verdict{}, "good again never in both, errors under 5% never in both, peak at the server +0"},
	} {
		if got := tc.a.against(tc.b); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
