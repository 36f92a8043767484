package metrics

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxEdges limits a ladder, so that histograms are plain arrays.
const maxEdges = 17

// maxAttempts is the highest bucket of attempts_per_request. The batch profile makes 8
// retries, so no profile of ours allows more than 9 attempts.
const maxAttempts = 9

// durationLadder has the buckets of requests, attempts and added latency. They are the
// usual 1-2.5-5 steps, at most 2.5 times apart, from 1 ms to 1 s; below 1 ms, a proxy on
// the same host mainly measures itself. Above are the default timeouts: 10 s for an
// attempt, 30 s for a request, 60 s for a body without a byte, 180 s for the window of the
// batch profile. 600 s separates long transfers from endless ones. All three share the
// ladder so that they can be compared bucket by bucket.
var durationLadder = newLadder(
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
var backoffLadder = newLadder(
	25*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond,
	200*time.Millisecond, 400*time.Millisecond, 800*time.Millisecond,
	1600*time.Millisecond, 3200*time.Millisecond, 6400*time.Millisecond,
	12800*time.Millisecond, 25600*time.Millisecond, 32*time.Second,
	60*time.Second, 180*time.Second,
)

// ladder holds the upper, inclusive edges of a histogram's buckets, ascending. It does not
// change after newLadder.
type ladder struct {
	edges [maxEdges]time.Duration
	n     int
	// from[l] is the first edge for a value of bit length l, so that a search takes at most
	// a few steps.
	from [65]uint8
}

func newLadder(edges ...time.Duration) *ladder {
	l := &ladder{n: len(edges)}
	copy(l.edges[:], edges)
	for bit := 1; bit < 64; bit++ {
		least := time.Duration(1) << (bit - 1)
		k := 0
		for k < l.n && l.edges[k] < least {
			k++
		}
		l.from[bit] = uint8(k)
	}
	return l
}

// bucket returns the index of the bucket for d >= 0; n means above all edges.
func (l *ladder) bucket(d time.Duration) int {
	k := int(l.from[bits.Len64(uint64(d))&63])
	for k < l.n && d > l.edges[k] {
		k++
	}
	return k
}

// histogram counts durations. The sum is in microseconds, rounded to the nearest: in
// nanoseconds, 1000 concurrent requests would overflow 64 bits after 213 days.
type histogram struct {
	buckets [maxEdges + 1]atomic.Uint64
	micros  atomic.Uint64
}

// observe counts d; a negative d, from a clock set back, counts as 0.
func (h *histogram) observe(l *ladder, d time.Duration) {
	d = max(d, 0)
	h.buckets[l.bucket(d)].Add(1)
	h.micros.Add(uint64(d+500) / 1000)
}

// add adds the counts of another histogram with the same ladder.
func (h *histogram) add(o *histogram) {
	for i := range h.buckets {
		h.buckets[i].Add(o.buckets[i].Load())
	}
	h.micros.Add(o.micros.Load())
}

func (h *histogram) count() uint64 {
	n := uint64(0)
	for i := range h.buckets {
		n += h.buckets[i].Load()
	}
	return n
}

// metric exports h. The count is always the sum of the buckets. The sum of values may be a
// few observations ahead or behind.
func (h *histogram) metric(f *family, l *ladder, labels ...string) prometheus.Metric {
	cumulative := make(map[float64]uint64, l.n)
	n := uint64(0)
	for i, edge := range l.edges[:l.n] {
		n += h.buckets[i].Load()
		cumulative[float64(edge)/float64(time.Second)] = n
	}
	n += h.buckets[l.n].Load()
	return prometheus.MustNewConstHistogram(f.desc, n, float64(h.micros.Load())/1e6, cumulative, labels...)
}

// attemptCounts counts requests by their number of attempts. Up to maxAttempts it is exact,
// so that the sum follows from the counts; larger numbers are counted together.
type attemptCounts struct {
	exact   [maxAttempts + 1]atomic.Uint64 // index: attempts
	more    atomic.Uint64
	moreSum atomic.Uint64
}

func (a *attemptCounts) observe(attempts int) {
	attempts = max(attempts, 0)
	if attempts <= maxAttempts {
		a.exact[attempts].Add(1)
		return
	}
	a.more.Add(1)
	a.moreSum.Add(uint64(attempts))
}

func (a *attemptCounts) add(o *attemptCounts) {
	for i := range a.exact {
		a.exact[i].Add(o.exact[i].Load())
	}
	a.more.Add(o.more.Load())
	a.moreSum.Add(o.moreSum.Load())
}

func (a *attemptCounts) metric(f *family, label string) prometheus.Metric {
	cumulative := make(map[float64]uint64, maxAttempts)
	n, sum := a.exact[0].Load(), a.moreSum.Load()
	for i := 1; i <= maxAttempts; i++ {
		here := a.exact[i].Load()
		n += here
		sum += here * uint64(i)
		cumulative[float64(i)] = n
	}
	n += a.more.Load()
	return prometheus.MustNewConstHistogram(f.desc, n, float64(sum), cumulative, label)
}
