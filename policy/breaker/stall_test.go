package breaker

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// hush simulates a silence with requests sent at the given times after the last response. It looks
// every 10 ms and returns when the silence is surprising.
func hush(u *latency.Baseline, sent []time.Duration, until time.Duration) (time.Duration, bool) {
	s := silence{marks: make([]mark, 1)}
	n := int64(0)
	s.update(0, 0, 1)
	for now := time.Duration(0); now <= until; now += 10 * time.Millisecond {
		for int(n) < len(sent) && sent[n] < now {
			n++
		}
		s.update(now, n, 1)
		if s.suspicion(now, u, n) >= suspicionThreshold {
			return now, true
		}
	}
	return 0, false
}

func every(d time.Duration, n int) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = time.Duration(i+1) * d
	}
	return all
}

func TestSilence(t *testing.T) {
	ms := time.Millisecond
	fast := latencyWindow(repeat(100, 100*ms)...)
	half := latencyWindow(append(repeat(50, 10*ms), repeat(50, 30*time.Second)...)...)
	tenth := latencyWindow(append(repeat(90, 100*ms), repeat(10, time.Second)...)...)
	for _, tc := range []struct {
		name     string
		usual    *latency.Sums
		seconds  int
		sent     []time.Duration
		from, to time.Duration // when it is noticed; 0, 0: not within 25 s
	}{
		{"a busy upstream that stops is noticed within 400 ms", fast, 15, every(10*ms, 100), 300 * ms, 400 * ms},
		{"two requests are enough", fast, 15, every(10*ms, 2), 300 * ms, 500 * ms},
		{"one is not", fast, 15, every(10*ms, 1), 0, 0},
		{"few clients", latencyWindow(repeat(2, 100*ms)...), 15, every(500*ms, 20), 700 * ms, 1200 * ms},
		{"nothing sent, nothing missed", fast, 15, nil, 0, 0},
		{"long polls half of the time", half, 15, every(ms, 8), 0, 0},
		{"too many long polls at once", half, 15, every(ms, 100), 250 * ms, 300 * ms},
		{"slow endpoints in between", tenth, 15, every(10*ms, 3), 600 * ms, 2 * time.Second},
		{"slow endpoints, all of ten requests", tenth, 15, every(10*ms, 10), 300 * ms, 400 * ms},
		{"an upstream that takes a second", latencyWindow(repeat(100, time.Second)...), 15, every(10*ms, 1000), 3 * time.Second, 3500 * ms},
	} {
		var u latency.Baseline
		learn(&u, tc.seconds, tc.usual, true)
		at, is := hush(&u, tc.sent, 25*time.Second)
		if is != (tc.to > 0) || at < tc.from || at > tc.to {
			t.Errorf("%s: noticed %v after %v, want %v to %v", tc.name, is, at, tc.from, tc.to)
		}
	}
}

func TestSilenceOfAnUnknownUpstream(t *testing.T) {
	var u latency.Baseline
	if at, is := hush(&u, every(10*time.Millisecond, 1000), 10*time.Minute); is {
		t.Errorf("noticed after %v, though it may be slow", at)
	}
	s := silence{marks: make([]mark, 1)}
	s.update(0, 0, 0)
	s.update(time.Second, 9, 0)
	s.leftLate = 3
	if s.suspicion(3*time.Second, &u, 9) < suspicionThreshold {
		t.Error("three clients left and nobody was answered: not noticed")
	}
	learn(&u, 1, latencyWindow(repeat(5, 10*time.Millisecond)...), true)
	if at, is := hush(&u, every(10*time.Millisecond, 1000), 10*time.Minute); is {
		t.Errorf("little known: noticed after %v without anybody leaving", at)
	}
}

func TestAResponseEndsTheStall(t *testing.T) {
	var u latency.Baseline
	learn(&u, 15, latencyWindow(repeat(100, 100*time.Millisecond)...), true)
	s := silence{marks: make([]mark, 1)}
	for now, n := time.Duration(0), int64(0); now < time.Minute; now += 10 * time.Millisecond {
		n++
		answered := int64(now / (200 * time.Millisecond)) // one in twenty
		s.update(now, n, answered)
		if s.suspicion(now, &u, n-answered) >= suspicionThreshold {
			t.Fatalf("noticed after %v, though something was answered lately", now)
		}
	}
}

func TestWhatEndedIsNotMissed(t *testing.T) {
	var u latency.Baseline
	learn(&u, 15, latencyWindow(repeat(100, 100*time.Millisecond)...), true)
	s := silence{marks: make([]mark, 1)}
	s.update(0, 0, 1)
	for now := time.Duration(0); now < time.Minute; now += 10 * time.Millisecond {
		s.update(now, int64(now/(100*time.Millisecond)), 1)
		if s.suspicion(now, &u, 1) >= suspicionThreshold {
			t.Fatalf("%v: a single request in flight is missed", now)
		}
	}
}
