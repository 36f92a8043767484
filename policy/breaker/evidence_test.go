package breaker

import (
	"testing"
	"time"
)

// feed ends good and bad attempts for d, at these rates per second. Every bad one has a key of its
// own. It returns after what time the upstream counts as failing.
func feed(e *evidence, from, d time.Duration, good, bad int) (after time.Duration, condemned bool) {
	key := uint32(from)
	for t := time.Duration(0); t < d; t += 10 * time.Millisecond {
		now := from + t
		for i := int(t / (10 * time.Millisecond) % 100); i < good; i += 100 {
			e.good(now, 1)
		}
		for i := int(t / (10 * time.Millisecond) % 100); i < bad; i += 100 {
			key += 2
			e.bad(now, AttemptEnd{Kind: Reset, Key: key | 1})
			if e.upstreamFails() {
				return t, true
			}
		}
	}
	return 0, false
}

// One client that sends only failing requests, each to another URL, must not open the breaker for
// clients whose requests succeed.
func TestFailuresBesideUsualGoodputDoNotOpenTheBreaker(t *testing.T) {
	for _, good := range []int{3, 19, 100} {
		var e evidence
		feed(&e, 0, 20*time.Second, good, 0)
		if after, is := feed(&e, 20*time.Second, 30*time.Second, good, 50*good); is {
			t.Errorf("%d good responses a second beside %d failures: condemned after %v", good, 50*good, after)
		}
	}
}

func TestFailuresInsteadOfGoodResponsesOpenTheBreakerSoon(t *testing.T) {
	for _, tc := range []struct{ good, bad int }{{0, 100}, {0, 25}, {5, 95}, {1, 300}} {
		var e evidence
		feed(&e, 0, 20*time.Second, 100, 0)
		after, is := feed(&e, 20*time.Second, 10*time.Second, tc.good, tc.bad)
		if !is || after > 2*time.Second {
			t.Errorf("after 100 good responses a second, %d good and %d bad: condemned %v after %v, want within 2 s", tc.good, tc.bad, is, after)
		}
	}
}
