package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxEdges limits a ladder, so that histograms are plain arrays.
const maxEdges = 17

// durationLadder has the buckets of requests, attempts and added latency. They are the
// usual 1-2.5-5 steps, at most 2.5 times apart, from 1 ms to 1 s; below 1 ms, a proxy on
// the same host mainly measures itself. Above are the default timeouts: 10 s for an
// attempt, 30 s for a request, 60 s for a body without a byte, 180 s for the window of the
// batch profile. 600 s separates long transfers from endless ones. All three share the
// ladder so that they can be compared bucket by bucket.
var durationLadder = durations(
	time.Millisecond, 2500*time.Microsecond, 5*time.Millisecond,
	10*time.Millisecond, 25*time.Millisecond, 50*time.Millisecond,
	100*time.Millisecond, 250*time.Millisecond, 500*time.Millisecond,
	time.Second, 2500*time.Millisecond, 5*time.Second,
	10*time.Second, 30*time.Second, 60*time.Second, 180*time.Second, 600*time.Second,
)

// backoffLadder doubles from 25 ms to 25.6 s, like the default backoff (base 100 ms, factor
// 2). Retry n of full jitter waits at most 0.1 * 2^n s, so each bound is an edge, with two
// edges below the first for its short draws. 32 s is the default cap; larger values come
// from Retry-After, up to 60 s and the batch profile's 180 s.
var backoffLadder = durations(
	25*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond,
	200*time.Millisecond, 400*time.Millisecond, 800*time.Millisecond,
	1600*time.Millisecond, 3200*time.Millisecond, 6400*time.Millisecond,
	12800*time.Millisecond, 25600*time.Millisecond, 32*time.Second,
	60*time.Second, 180*time.Second,
)

// attemptsLadder counts each number of attempts by itself. The batch profile makes 8 retries, so
// no profile of ours allows more than 9 attempts.
var attemptsLadder = ladder{edges: []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, step: 1, unit: 1}

// ladder holds the upper, inclusive edges of a histogram's buckets, ascending. It does not change.
type ladder struct {
	edges []int64
	// The sum is kept in steps, rounded to the nearest: in nanoseconds, 1000 concurrent requests
	// would overflow 64 bits after 213 days.
	step uint64
	unit float64 // the exported values are in units
}

// durations returns a ladder of durations, which are exported in seconds.
func durations(edges ...time.Duration) ladder {
	l := ladder{step: uint64(time.Microsecond), unit: float64(time.Second)}
	for _, edge := range edges {
		l.edges = append(l.edges, int64(edge))
	}
	return l
}

// bucket returns the index of the bucket for v; len(l.edges) means above all edges.
func (l *ladder) bucket(v int64) int {
	for i, edge := range l.edges {
		if v <= edge {
			return i
		}
	}
	return len(l.edges)
}

// histogram counts values. It is not prometheus.Histogram, where an observation takes 70 ns with two goroutines on
// one route (here 8 ns), and a request makes three to five.
type histogram struct {
	buckets [maxEdges + 1]atomic.Uint64
	steps   atomic.Uint64
}

// observe counts v. One below 0, such as a duration from a clock set back, counts as 0.
func (h *histogram) observe(l *ladder, v int64) {
	v = max(v, 0)
	h.buckets[l.bucket(v)].Add(1)
	h.steps.Add((uint64(v) + l.step/2) / l.step)
}

func (h *histogram) count() (n uint64) {
	for i := range h.buckets {
		n += h.buckets[i].Load()
	}
	return n
}

// distribution is the sum of several histograms with one ladder.
type distribution struct {
	buckets [maxEdges + 1]uint64
	steps   uint64
}

func (d *distribution) add(h *histogram) {
	addLoaded(d.buckets[:], h.buckets[:])
	d.steps += h.steps.Load()
}

// empty reports whether nothing was counted.
func (d *distribution) empty() bool { return d.buckets == [maxEdges + 1]uint64{} }

// metric exports d. The count is always the sum of the buckets. The sum of values may be a
// few observations ahead or behind.
func (d *distribution) metric(f *family, l *ladder, labels ...string) prometheus.Metric {
	cumulative := make(map[float64]uint64, len(l.edges))
	n := uint64(0)
	for i, edge := range l.edges {
		n += d.buckets[i]
		cumulative[float64(edge)/l.unit] = n
	}
	n += d.buckets[len(l.edges)]
	return prometheus.MustNewConstHistogram(f.desc, n, float64(d.steps)*float64(l.step)/l.unit, cumulative, labels...)
}
