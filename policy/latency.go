package policy

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Latencies estimates one quantile of the latencies of a stream of requests,
// in bounded memory (about 5 KiB) and for the price of one atomic addition for
// each of them.
//
// It is a histogram of logarithmic buckets, eight to the octave, from which a
// quantile is read as the upper end of the bucket where its share is reached:
// never below the true one of what is counted, and at most 13 % above it. Once
// a second what came since is folded into sums that halve in ten seconds,
// which is about the window of the retry budget, but not below four times the
// samples that are needed: so a busy route follows a change within seconds, and
// a quiet one remembers. Below ten samples beyond the quantile (200 in all for
// the 95th percentile, 1000 for the 99th) there is no estimate.
//
// Source of the buckets: Gil Tene's HdrHistogram, which has them with a
// configurable width; of the decay: Cormode, Shkapenyuk, Srivastava and Xu,
// "Forward Decay" (ICDE 2009), here in steps. The P2 algorithm (Jain and
// Chlamtac 1985) needs less memory, but a lock for each sample, and forgets
// nothing.
//
// A request that is no longer waited for has no latency, and leaving it out
// would make the estimate fall, the hedge that follows it come sooner and the
// estimate fall again. So what has waited as long as the estimate counts with
// the time it has waited (Unanswered): it lies beyond the quantile all the same.
//
// All methods are safe for concurrent use, do not allocate and take no lock but
// once a second. now is monotonic time of any origin not below 0, the same
// origin for all calls. Make one with NewLatencies.
type Latencies struct {
	fresh    latencyWindow // since the last fold
	foldAt   atomic.Int64
	estimate atomic.Int64 // 0: not known

	quantile float64
	need     float64 // samples

	mu     sync.Mutex // held while folding; guards all below
	folded time.Duration
	sums   latencySums // decayed
	window latencySums // scratch
}

const (
	latencyFold   = time.Second
	latencyHalf   = 10 * time.Second
	samplesBeyond = 10
	keepSamples   = 4 // times those needed
)

// NewLatencies makes one for the quantile of percent, held within 1 and 99,
// that has seen nothing.
func NewLatencies(percent int) *Latencies {
	percent = min(max(percent, 1), 99)
	return &Latencies{
		quantile: float64(percent) / 100,
		need:     math.Ceil(samplesBeyond * 100 / float64(100-percent)),
	}
}

// ObserveResponse counts a request whose answer came after d.
func (l *Latencies) ObserveResponse(d time.Duration) { l.fresh.add(d) }

// ObserveAbandoned counts a request that was given up after d, if that says that its
// latency is beyond the quantile.
func (l *Latencies) ObserveAbandoned(d time.Duration) {
	if estimate := l.estimate.Load(); estimate > 0 && int64(d) >= estimate {
		l.fresh.add(d)
	}
}

// Estimate is the quantile as of the last fold, 0 while it is not known.
func (l *Latencies) Estimate(now time.Duration) time.Duration {
	if int64(now) >= l.foldAt.Load() {
		l.fold(now)
	}
	return time.Duration(l.estimate.Load())
}

// fold takes in what came since the last time. Whoever comes while another
// folds goes on with the estimate as it is.
func (l *Latencies) fold(now time.Duration) {
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if int64(now) < l.foldAt.Load() {
		return
	}
	l.fresh.drain(&l.window)
	l.age(now - l.folded)
	for i, n := range l.window.counts {
		l.sums.counts[i] += n
	}
	l.sums.total += l.window.total
	if l.sums.total >= l.need {
		l.estimate.Store(int64(l.sums.quantile(l.quantile)))
	}
	l.folded = now
	l.foldAt.Store(int64(now + latencyFold))
}

// age lets decay what dt takes away, as far as there is enough of it.
func (l *Latencies) age(dt time.Duration) {
	floor := keepSamples * l.need
	if l.window.total == 0 || l.sums.total <= floor {
		return
	}
	keep := max(decay(dt, latencyHalf), floor/l.sums.total)
	for i := range l.sums.counts {
		l.sums.counts[i] *= keep
	}
	l.sums.total *= keep
}
