package backoff

import (
	"math"
	"testing"
	"time"
)

// near compares a duration with the published seconds, to the digits given there.
func near(t *testing.T, what string, got time.Duration, want float64) {
	t.Helper()
	if math.Abs(got.Seconds()-want) > 0.0006 {
		t.Errorf("%s: %.4f s, want %v", what, got.Seconds(), want)
	}
}

func TestRatioPublishedChecks(t *testing.T) {
	double := Ratio{First: time.Second, Ratio: 1, Max: time.Hour}
	near(t, "wait after 1023 s", double.After(1023*time.Second), 1024)
	if n := double.Tries(1023 * time.Second); math.Abs(n-10) > 1e-9 {
		t.Errorf("tries in 1023 s: %v, want 10", n)
	}

	tenth := Ratio{First: time.Second, Ratio: 0.1, Max: time.Hour}
	near(t, "wait after T_48 for r = 1.1", tenth.After(960172*time.Millisecond), 97.017)
	if f := tenth.Multiplies(double); math.Abs(1/f-7.27) > 0.005 {
		t.Errorf("from r = 2 to 1.1: factor %v, want 7.27", 1/f)
	}
	if f := double.Multiplies(tenth); math.Abs(f-7.27) > 0.005 {
		t.Errorf("from r = 2 to 1.1: factor %v, want 7.27", f)
	}
	if f := tenth.Tries(1000*time.Second) / double.Tries(1000*time.Second); f < 4.5 || f > 5.5 {
		t.Errorf("within 1000 s the factor is %v, want about 5", f)
	}
}

func TestRatioTriesAgreeWithTheWaits(t *testing.T) {
	for _, b := range []Ratio{{time.Second, 1, time.Hour}, {time.Second, 0.1, time.Hour}, {50 * time.Millisecond, 0.003, time.Hour}, {time.Minute, 0.5, Forever}} {
		elapsed := time.Duration(0)
		for n := range 12 {
			if got := b.Tries(elapsed); math.Abs(got-float64(n)) > 1e-6 {
				t.Errorf("%v: %v tries within T_%d", b, got, n)
			}
			elapsed += b.Wait(Step{Retry: n, Elapsed: elapsed}, nil)
		}
	}
}

func TestRatioIsCapped(t *testing.T) {
	b := Ratio{First: time.Second, Ratio: 1, Max: time.Hour}
	if w := b.Wait(Step{Retry: 20, Elapsed: 10 * time.Hour}, nil); w != time.Hour {
		t.Errorf("after ten hours it waits %v, want an hour", w)
	}
}
