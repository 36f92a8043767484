package policy

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Latencies are counted in buckets of a fixed relative width: eight to the
// octave from 8 us on, so that a bucket's ends differ by 6 to 13 %. Bucket i
// holds [lowest(i), lowest(i+1)). The last one holds all from 67 minutes on.
const (
	latencyBuckets = 240
	perOctave      = 8
)

// bucketOf is the bucket of a latency; what is not positive counts as nothing.
func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < perOctave {
		return int(us)
	}
	octave := bits.Len64(us) - 4 // us >> octave is in 8..15
	return min(octave*perOctave+int(us>>octave), latencyBuckets-1)
}

// lowest is the least latency of bucket i.
func lowest(i int) time.Duration {
	if i < 2*perOctave {
		return time.Duration(i) * time.Microsecond
	}
	octave := i/perOctave - 1
	return time.Duration(uint64(perOctave+i%perOctave)<<octave) * time.Microsecond
}

// middle stands for all latencies of bucket i.
func middle(i int) time.Duration { return lowest(i)/2 + lowest(i+1)/2 }

// latencyWindow counts latencies; one atomic addition each.
type latencyWindow [latencyBuckets]atomic.Uint32

func (w *latencyWindow) add(d time.Duration) { w[bucketOf(d)].Add(1) }

// drain moves the counts to s and leaves the window empty.
func (w *latencyWindow) drain(s *latencySums) {
	*s = latencySums{}
	for i := range w {
		if w[i].Load() == 0 {
			continue
		}
		n := float64(w[i].Swap(0))
		s.counts[i] = n
		s.total += n
		s.sum += time.Duration(n * float64(middle(i)))
	}
}

// latencySums is what a window held.
type latencySums struct {
	counts [latencyBuckets]float64
	total  float64
	sum    time.Duration // sum of the latencies
}

func (s *latencySums) add(d time.Duration) {
	i := bucketOf(d)
	s.counts[i]++
	s.total++
	s.sum += middle(i)
}

// mean is the mean latency; 0 without counts.
func (s *latencySums) mean() time.Duration {
	if s.total <= 0 {
		return 0
	}
	return time.Duration(float64(s.sum) / s.total)
}

// quantile is the upper end of the bucket where the share q of the counts is
// reached; 0 without counts.
func (s *latencySums) quantile(q float64) time.Duration {
	if s.total <= 0 {
		return 0
	}
	left := q * s.total
	for i, n := range s.counts {
		if left -= n; left <= 0 && n > 0 {
			return lowest(i + 1)
		}
	}
	return lowest(latencyBuckets)
}

// baseline is what is usual for an upstream: the spread of its latencies and the
// concurrency it was seen to bear. It learns from windows in which the
// upstream was well and forgets slowly.
type baseline struct {
	sums  latencySums // weights, decayed
	above [latencyBuckets + 1]float64

	median, p90, mean time.Duration
	longest           time.Duration // upper end of the last bucket that counts
	concurrency       float64       // highest mean over a window, decayed
	rate              float64       // most answers per second over a window, decayed
	foldedAt          time.Duration

	// Requests that take long are not in sums while they take it. So pending
	// is how many were seen to be overdue while others were answered, decayed,
	// and recent how many were answered in the last recentFor or so.
	pending, recent float64

	pause time.Duration // longest silence that ended by itself, decayed
}

const (
	// knownSamples is how many latencies make a usual one, establishedSamples how many
	// tell something of their spread.
	knownSamples       = 3
	establishedSamples = 20
	// foldEvery is the window of one measurement of concurrency. It is long
	// enough to hold a dozen requests of a small service and short enough to
	// be a peak of a large one.
	foldEvery = time.Second
	// baselineHalfLife halves the weight of what was learnt, as long as there is
	// enough of it (decayFromSamples): five minutes follow a deployment or the time
	// of day and outlast a hiccup.
	baselineHalfLife = 5 * time.Minute
	decayFromSamples = 200
	// maxWeightPerSecond bounds the weight of a window, so that time counts and
	// not requests: a rush of a few seconds, ten times as busy, must not make
	// its own slowness usual.
	maxWeightPerSecond = 100
	// slowWindowWeight is the weight of windows that were slower than usual. What
	// becomes slow for good is learnt in minutes; overload that builds up in
	// seconds is not.
	slowWindowWeight = 0.1
	recentFor        = 10 * time.Second
	pendingFor       = time.Minute
	// longestPause bounds what is taken for a hiccup.
	longestPause = 500 * time.Millisecond
)

func (u *baseline) known() bool       { return u.sums.total >= knownSamples }
func (u *baseline) established() bool { return u.sums.total >= establishedSamples }

// fold takes in a window of length dt that ends at now, with a mean of atOnce
// requests in flight. easy says that the
// upstream was not slower than usual, so that it bears this concurrency.
func (u *baseline) fold(w *latencySums, now, dt time.Duration, atOnce float64, easy bool) {
	u.foldedAt = now
	keep := decay(dt, baselineHalfLife)
	u.concurrency *= keep
	u.rate *= keep
	u.pause = time.Duration(float64(u.pause) * keep)
	u.pending *= decay(dt, pendingFor)
	u.recent = u.recent*decay(dt, recentFor) + w.total
	if easy {
		u.concurrency = max(u.concurrency, atOnce)
		u.rate = max(u.rate, w.total/dt.Seconds())
	}
	if u.sums.total < decayFromSamples {
		keep = 1
	}
	if w.total == 0 && keep == 1 {
		return
	}
	weight := min(1, maxWeightPerSecond*dt.Seconds()/max(w.total, 1))
	if !easy {
		weight *= slowWindowWeight
	}
	u.sums.total, u.sums.sum = 0, 0
	for i := range u.sums.counts {
		n := u.sums.counts[i]*keep + w.counts[i]*weight
		u.sums.counts[i] = n
		u.sums.total += n
		u.sums.sum += time.Duration(n * float64(middle(i)))
	}
	u.derive()
}

// decay is what is left after dt of what halves in half.
func decay(dt, half time.Duration) float64 { return math.Exp2(-float64(dt) / float64(half)) }

// sawPending learns that n requests at least were overdue while others were
// answered.
func (u *baseline) sawPending(n int64) { u.pending = max(u.pending, float64(n)) }

// sawPause learns from a silence that ended by itself.
func (u *baseline) sawPause(d time.Duration) {
	if d <= longestPause {
		u.pause = max(u.pause, d)
	}
}

// forget unlearns the latencies, when they have changed for good.
func (u *baseline) forget(now time.Duration) {
	*u = baseline{concurrency: u.concurrency, rate: u.rate, foldedAt: now}
}

// relearn takes latencies for usual in place of all that was learnt.
func (u *baseline) relearn(w *latencySums, now time.Duration) {
	u.forget(now)
	u.sums = *w
	u.derive()
}

// derive works out what is asked often.
func (u *baseline) derive() {
	s := &u.sums
	u.longest = 0
	for i := latencyBuckets - 1; i >= 0; i-- {
		u.above[i] = u.above[i+1] + s.counts[i]
		if u.longest == 0 && u.above[i] >= 0.5 {
			u.longest = lowest(i + 1)
		}
	}
	if s.total > 0 {
		u.mean = time.Duration(float64(s.sum) / s.total)
	}
	u.median, u.p90 = s.quantile(0.5), s.quantile(0.9)
}

// tailPower is how fast latencies longer than any seen are taken to become
// rarer: P(L > a) ~ a^-3. Heavy for a response time (a lognormal one falls
// faster), so that rare slow requests do not look like an outage.
const tailPower = 3

// tail is the probability that a request takes longer than age, by what was
// seen, with the law of succession for what was not: never 0 and never 1.
func (u *baseline) tail(age time.Duration) float64 {
	longer := u.above[bucketOf(age)]
	p := (longer + 1) / (u.sums.total + 2)
	if age > u.longest && u.longest > 0 {
		p *= math.Pow(float64(u.longest)/float64(age), tailPower)
	}
	return max(p, u.pending/(u.pending+u.recent+1))
}
