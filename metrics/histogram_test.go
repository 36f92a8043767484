package metrics

import (
	"math"
	"testing"
	"time"
)

func TestBucketIsTheFirstEdgeNotBelow(t *testing.T) {
	for name, l := range map[string]ladder{"duration": durationLadder, "backoff": backoffLadder, "attempts": attemptsLadder} {
		for i, edge := range l.edges {
			if at, above := l.bucket(edge), l.bucket(edge+1); at != i || above != i+1 {
				t.Errorf("%s: bucket(%v) = %d and bucket(%v) = %d, want %d and %d", name, edge, at, edge+1, above, i, i+1)
			}
		}
		if got := l.bucket(math.MaxInt64); got != len(l.edges) || got > maxEdges {
			t.Errorf("%s: bucket(MaxInt64) = %d of %d", name, got, maxEdges)
		}
	}
}

// Extreme values land in the outer buckets and do not spoil the sum.
func TestHistogramTakesAnyDuration(t *testing.T) {
	m := New(Options{})
	r := m.Route("a").Near()
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 499, 600, time.Millisecond, 601 * time.Second} {
		r.AttemptDone(0, 200, d)
	}
	scrape(t, m).want(t, map[string]string{
		`retryproxy_attempt_duration_seconds_bucket{code_class="2xx",route="a",le="0.001"}`: "6",
		`retryproxy_attempt_duration_seconds_bucket{code_class="2xx",route="a",le="600"}`:   "6",
		`retryproxy_attempt_duration_seconds_bucket{code_class="2xx",route="a",le="+Inf"}`:  "7",
		`retryproxy_attempt_duration_seconds_sum{code_class="2xx",route="a"}`:               "601.001001",
	})
	r.AttemptDone(0, 200, math.MaxInt64)
	if got := scrape(t, m).sum(t, "retryproxy_attempt_duration_seconds_sum"); got < 9.2e9 {
		t.Errorf("the sum is %v after the longest of all durations", got)
	}
}

func TestAttemptsAreCountedByNumber(t *testing.T) {
	m := New(Options{})
	r := m.Route("a").Near()
	for _, n := range []int{-5, 0, 1, 1, 3, 9, 10, 100} {
		r.RequestDone(nil, 200, 0, 0, time.Millisecond, n)
	}
	r.RequestDone(nil, 200, 0, 0, 0, 2) // hedged, no failure
	scrape(t, m).want(t, map[string]string{
		`retryproxy_attempts_per_request_bucket{route="a",le="1"}`:    "4",
		`retryproxy_attempts_per_request_bucket{route="a",le="2"}`:    "5",
		`retryproxy_attempts_per_request_bucket{route="a",le="3"}`:    "6",
		`retryproxy_attempts_per_request_bucket{route="a",le="9"}`:    "7",
		`retryproxy_attempts_per_request_bucket{route="a",le="+Inf"}`: "9",
		`retryproxy_attempts_per_request_sum{route="a"}`:              "126",
		`retryproxy_added_latency_seconds_count{route="a"}`:           "4",
	})
}
