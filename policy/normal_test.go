package policy

import (
	"math"
	"testing"
	"time"
)

func TestNormalHasTheSpreadAsked(t *testing.T) {
	b, r := Normal{Base: 1, Max: time.Hour, Factor: 2, Jitter: 0.1}, seeded(36)
	s := Step{Retry: 4, Previous: 500 * time.Millisecond}
	const draws = 200_000
	var squares float64
	for range draws {
		d := (b.Wait(s, r) - time.Second).Seconds()
		squares += d * d
	}
	if sigma := math.Sqrt(squares / draws); sigma < 0.098 || sigma > 0.102 {
		t.Errorf("standard deviation %v s, want 0.1 s", sigma)
	}
}

// The published curves of the rule: the wait of each retry, and the time at
// which the cap is reached.
func TestNormalFollowsThePublishedCurves(t *testing.T) {
	for _, tc := range []struct {
		o     Options
		curve []float64 // seconds, without noise
	}{
		{Options{Base: 100 * time.Millisecond, Factor: 2.7, Jitter: 0.1, Max: 10 * time.Minute},
			[]float64{0.1, 0.27, 0.729, 1.9683, 5.31441, 14.348907, 38.742049, 104.603532, 282.429536, 600, 600, 600}},
		{Options{Base: time.Second, Factor: 1.5, Jitter: 0.1, Max: 5 * time.Minute},
			[]float64{1, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625, 17.085938, 25.628906, 38.443359, 57.665039,
				86.497559, 129.746338, 194.619507, 291.929260, 300, 300, 300}},
	} {
		b := mustNew(t, "normal", tc.o)
		r := seeded(37)
		const walks = 20_000
		sums := make([]float64, len(tc.curve))
		for range walks {
			next := walkRandom(b, PlanOptions{}, r)
			for i := range sums {
				w, _ := next(i)
				if i == 0 && w != tc.o.Base {
					t.Fatalf("the first wait is %v", w)
				}
				sums[i] += w.Seconds()
			}
		}
		for i, want := range tc.curve {
			tolerance := 0.02 * want
			if want > 0.6*tc.o.Max.Seconds() {
				tolerance = 0.15 * want // some walks are at the cap, some not yet: the mean is below either
			}
			if got := sums[i] / walks; math.Abs(got-want) > tolerance {
				t.Errorf("%v: retry %d waits %.3f s in the mean, the curve says %.3f", b, i+1, got, want)
			}
		}
	}
}

// Noise must be inherited, else the rule is a plain jittered curve.
func TestNormalFeedsTheNextStepWithWhatWasWaited(t *testing.T) {
	b, r := Normal{Base: time.Second, Max: time.Hour, Factor: 2, Jitter: 1e-9}, seeded(38)
	if w := b.Wait(Step{Retry: 1, Previous: 7 * time.Second}, r); w < 13*time.Second || w > 15*time.Second {
		t.Errorf("after a wait of 7 s comes %v, want 14 s", w)
	}
}

// A wait of 0 would multiply to 0 for ever.
func TestNormalBeginsAgainAfterNoWait(t *testing.T) {
	b := Normal{Base: time.Second, Max: time.Hour, Factor: 2, Jitter: 0.1}
	if w := b.Wait(Step{Retry: 3}, seeded(42)); w != time.Second {
		t.Errorf("after a wait of 0 comes %v, want the base", w)
	}
}
