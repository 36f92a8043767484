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
			e.bad(now, now, AttemptEnd{Kind: Reset, Key: key | 1}, false)
			if e.shows(now) {
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

// Time may go back a little between two calls.
func TestEvidenceOutOfOrderCounts(t *testing.T) {
	var e evidence
	for i := range many {
		e.good(20*time.Second-time.Duration(i%2)*150*time.Millisecond, 1)
	}
	e.advance(20 * time.Second)
	n := int64(0)
	for _, s := range e.slots {
		n += s.good
	}
	if n != many {
		t.Errorf("%d of %d counted", n, many)
	}
}

// Which failures have the same key in nearly all cases, whatever comes in between.
func TestOneURL(t *testing.T) {
	for _, tc := range []struct {
		name string
		keys []int // key 1 so often, then key 2, then key 1, and so on; the last of all are key 3
		want bool
	}{
		{"one only", []int{20}, true},
		{"another one first", []int{1, 1, 20}, true},
		{"a few in between", []int{10, 3, 10}, true},
		{"another one began", []int{0, 2, 20}, true},
		{"two", []int{10, 10, 10, 10}, false},
	} {
		var e evidence
		for i, n := range tc.keys {
			for range n {
				e.bad(0, 0, AttemptEnd{Kind: Reset, Key: uint32(1 + i%2)}, false)
			}
		}
		if _, one := e.oneURL(); one != tc.want {
			t.Errorf("%s: %v", tc.name, !tc.want)
		}
	}
	var e evidence
	for i := range 20 {
		e.bad(0, 0, AttemptEnd{Kind: Reset, Key: uint32(1 + i)}, false)
	}
	if _, one := e.oneURL(); one {
		t.Error("twenty keys are one")
	}
}

// What failed before a pause does not decide what opens the breaker after it.
func TestFailuresBeforeAPauseAreForgotten(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for i := range 100 {
		d.acquire()
		e := AttemptEnd{Status: 200}
		if i%2 == 0 {
			e = AttemptEnd{Kind: TimedOut}
		}
		d.end(0, e)
	}
	d.advance(evidenceWindow + time.Second)
	d.fail()
	d.want(Open, OpenedByFailing)
}
