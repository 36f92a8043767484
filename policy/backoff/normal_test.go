package backoff

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

// The noise must be inherited. Otherwise the rule is just a curve with jitter.
func TestNormalFeedsTheNextStepWithWhatWasWaited(t *testing.T) {
	b, r := Normal{Base: time.Second, Max: time.Hour, Factor: 2, Jitter: 1e-9}, seeded(38)
	if w := b.Wait(Step{Retry: 1, Previous: 7 * time.Second}, r); w < 13*time.Second || w > 15*time.Second {
		t.Errorf("after a wait of 7 s comes %v, want 14 s", w)
	}
}

// A wait of 0 would stay 0 for ever when multiplied.
func TestNormalBeginsAgainAfterNoWait(t *testing.T) {
	b := Normal{Base: time.Second, Max: time.Hour, Factor: 2, Jitter: 0.1}
	if w := b.Wait(Step{Retry: 3}, seeded(42)); w != time.Second {
		t.Errorf("after a wait of 0 comes %v, want the base", w)
	}
}
