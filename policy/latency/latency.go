package latency

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Latencies estimates one quantile of the latencies of a stream of requests. It uses
// bounded memory (about 5 KiB) and costs one atomic addition per request.
//
// It is a histogram of logarithmic buckets, eight per octave. A quantile is the upper end
// of the bucket in which its share is reached. It is never below the true one of the
// counted latencies, and at most 13 % above it. Once per second new counts are folded into
// sums with a half-life of ten seconds, which is about the window of the retry budget. The
// sums do not decay below four times the samples needed. So a busy route follows a change
// within seconds, and a quiet one remembers. With fewer than ten samples beyond the
// quantile (200 in total for the 95th percentile, 1000 for the 99th) there is no estimate.
//
// Source of the buckets: Gil Tene's HdrHistogram, which has them with a configurable width.
// Source of the decay: Cormode, Shkapenyuk, Srivastava and Xu, "Forward Decay" (ICDE 2009),
// here in steps. The P2 algorithm (Jain and Chlamtac 1985) needs less memory, but a lock
// for each sample, and forgets nothing.
//
// An abandoned request has no latency. Leaving it out would lower the estimate, so the
// hedge would come sooner and lower the estimate again. So a request that waited at least
// as long as the estimate counts with that time (ObserveAbandoned): it is beyond the
// quantile in any case.
//
// All methods are safe for concurrent use and do not allocate. They take a lock at most
// once per second. now is monotonic time of any origin not below 0, with the same origin
// for all calls. Make one with NewLatencies.
type Latencies struct {
	fresh    Window // since the last fold
	foldAt   atomic.Int64
	estimate atomic.Int64 // 0: not known

	percent int

	mu   sync.Mutex // held while folding; guards the fields below
	sums Sums       // decayed
}

const (
	samplesBeyond = 10 // the quantile: with fewer, one slow request moves it
	keepSamples   = 4  // times those needed, so that a quiet route remembers more than its last minute
)

// NewLatencies returns an empty Latencies for the given percentile, clamped to 1..99.
func NewLatencies(percent int) *Latencies {
	return &Latencies{percent: min(max(percent, 1), 99)}
}

// need returns the number of samples without which there is no estimate.
func (l *Latencies) need() float64 { return math.Ceil(samplesBeyond * 100 / float64(100-l.percent)) }

// ObserveResponse counts a request whose response came after d.
func (l *Latencies) ObserveResponse(d time.Duration) { l.fresh.Add(d) }

// ObserveAbandoned counts a request that was abandoned after d, if its latency is certainly
// beyond the quantile.
func (l *Latencies) ObserveAbandoned(d time.Duration) {
	if estimate := l.estimate.Load(); estimate > 0 && int64(d) >= estimate {
		l.fresh.Add(d)
	}
}

// Estimate returns the quantile as of the last fold; 0 while it is not known.
func (l *Latencies) Estimate(now time.Duration) time.Duration {
	if int64(now) >= l.foldAt.Load() {
		l.fold(now)
	}
	return time.Duration(l.estimate.Load())
}

// fold adds the counts since the last fold. If another goroutine is folding, it returns at
// once and the estimate stays as it is.
func (l *Latencies) fold(now time.Duration) {
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if int64(now) < l.foldAt.Load() {
		return
	}
	before := l.sums.Total
	l.fresh.moveTo(&l.sums)
	if l.sums.Total > before {
		l.age(now - time.Duration(l.foldAt.Load()) + FoldEvery)
	}
	if l.sums.Total >= l.need() {
		l.estimate.Store(int64(l.sums.Quantile(float64(l.percent) / 100)))
	}
	l.foldAt.Store(int64(now + FoldEvery))
}

// age decays the sums by dt, what is new included, but not below keepSamples times the samples needed.
func (l *Latencies) age(dt time.Duration) {
	floor := keepSamples * l.need()
	if l.sums.Total <= floor {
		return
	}
	keep := max(decay(dt, recentFor), floor/l.sums.Total)
	for i := range l.sums.counts {
		l.sums.counts[i] *= keep
	}
	l.sums.Total *= keep
}
