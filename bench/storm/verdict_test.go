package main

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// ticksOf makes ticks of a run: peace up to 10 s, nothing good up to 20 s, then
// what after gives for each tick.
func ticksOf(length time.Duration, after func(at time.Duration) rig.Counts) []rig.Counts {
	ticks := make([]rig.Counts, length/rig.Tick)
	for i := range ticks {
		switch at := time.Duration(i) * rig.Tick; {
		case at < 10*time.Second:
			ticks[i] = rig.Counts{rig.Good: 10, atServer: 10}
		case at < 20*time.Second:
			ticks[i] = rig.Counts{rig.Late: 40}
		default:
			ticks[i] = after(at - 20*time.Second)
		}
	}
	return ticks
}

func TestVerdict(t *testing.T) {
	well := rig.Counts{rig.Good: 10, atServer: 12}
	for name, c := range map[string]struct {
		after     func(at time.Duration) rig.Counts
		good, err float64 // -1: never
		peak      int
	}{
		"back at once": {
			// 95 % of 500 good ones are there after 48 ticks of 10.
			after: func(time.Duration) rig.Counts { return well }, good: 4.8, err: 0, peak: 12,
		},
		"never back": {
			after: func(time.Duration) rig.Counts { return rig.Counts{rig.Late: 40, atServer: 20_000} }, good: -1, err: -1, peak: 20_000,
		},
		"a burst counts for the mean": {
			after: func(at time.Duration) rig.Counts {
				if at < time.Second {
					return rig.Counts{rig.Good: 50, rig.Bad: 50, atServer: 60}
				}
				return well
			}, good: 1.0, err: 1.9, peak: 60,
		},
		"errors that come back": {
			after: func(at time.Duration) rig.Counts {
				if at == 15*time.Second {
					return rig.Counts{rig.Good: 10, rig.Bad: 10}
				}
				return well
			}, good: 4.8, err: 16.0, peak: 12,
		},
		"silence is no success": {
			after: func(time.Duration) rig.Counts { return rig.Counts{} }, good: -1, err: -1, peak: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(recorded(ticksOf(50*time.Second, c.after)), 10*time.Second, 20*time.Second)
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
