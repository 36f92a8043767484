package metrics

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// bucketBySearch does what bucket does, slowly.
func bucketBySearch(l *ladder, d time.Duration) int {
	k := 0
	for k < l.n && d > l.edges[k] {
		k++
	}
	return k
}

func TestBucketIsTheFirstEdgeNotBelow(t *testing.T) {
	for name, l := range map[string]*ladder{"duration": durationLadder, "backoff": backoffLadder} {
		check := func(d time.Duration) {
			if got, want := l.bucket(d), bucketBySearch(l, d); got != want {
				t.Errorf("%s: bucket(%v) = %d, want %d", name, d, got, want)
			}
		}
		for _, edge := range l.edges[:l.n] {
			check(edge - 1)
			check(edge)
			check(edge + 1)
		}
		for bit := range 63 {
			check(1 << bit)
			check(1<<bit - 1)
		}
		check(math.MaxInt64)
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 10000 {
			check(time.Duration(rnd.Int64() >> rnd.IntN(63)))
		}
	}
}

func TestLaddersAscend(t *testing.T) {
	for name, l := range map[string]*ladder{"duration": durationLadder, "backoff": backoffLadder} {
		for i := 1; i < l.n; i++ {
			if l.edges[i] <= l.edges[i-1] {
				t.Errorf("%s: edge %d is %v after %v", name, i, l.edges[i], l.edges[i-1])
			}
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
