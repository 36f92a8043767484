package breaker

import (
	"math"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

func latencyWindow(d ...time.Duration) *latency.Sums {
	var w latency.Window
	for _, v := range d {
		w.Add(v)
	}
	var s latency.Sums
	w.Drain(&s)
	return &s
}

func repeat(n int, d time.Duration) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = d
	}
	return all
}

func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if math.Abs(math.Log(float64(got)/float64(want))) > 0.13 {
		t.Errorf("%s: %v, want about %v", what, got, want)
	}
}

// learn adds n windows like w to u.
func learn(u *latency.Baseline, n int, w *latency.Sums, easy bool) {
	for range n {
		u.Fold(w, time.Second, float64(w.Sum)/float64(time.Second), easy)
	}
}
