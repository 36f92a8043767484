package policy

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ClientThrottler turns requests away here while the upstream turns nearly all of them
// away there: a rejection costs the upstream work too, and with enough of them
// it does nothing else. A request is not sent with the probability
//
//	max(0, (requests - 2 accepts) / (requests + 1))
//
// where requests are those that a response is known of, or that were turned
// away here, and accepts those that the upstream took. So nothing happens until
// it rejects half of them, an upstream that takes c a second gets about 2c, and
// one that takes nothing still gets one about every ten seconds, which is how
// its return is noticed.
//
// Source: Google, Site Reliability Engineering, chapter 21 "Handling
// Overload", with its factor of 2. There the counts are of the last two
// minutes; here they decay with a time constant of ten seconds, which is the
// window of the retry budget too: what was taken ten seconds ago counts for
// 37 %. After an outage the share that is sent grows with the same constant, so
// with n requests a second it takes about 10 s x ln(5 n) until all are sent:
// one minute with a hundred a second. Requests in flight count for nothing,
// or a start with many at once would look like a rejection.
//
// All methods are safe for concurrent use, do not allocate and take no lock but
// once a second. now is monotonic time of any origin not below 0, the same
// origin for all calls; calls may come slightly out of order. Make one with
// NewClientThrottler.
type ClientThrottler struct {
	requests atomic.Int64 // since the start
	accepts  atomic.Int64
	decayAt  atomic.Int64 // when the decay is next reckoned

	// What of the counts has decayed, as the bits of a float64: the rest counts.
	decayed [2]atomic.Uint64

	mu sync.Mutex    // held while the decay is reckoned
	at time.Duration // until when it is
}

const (
	clientThrottlingFactor = 2
	clientThrottlingMean   = 10 * time.Second
	clientThrottlingStep   = time.Second
)

// NewClientThrottler makes one that has seen nothing and lets all pass.
func NewClientThrottler() *ClientThrottler { return new(ClientThrottler) }

// Allow says whether a request may be sent; draw is uniform in [0, 1). One that
// may not counts as a request, one that may counts when Done tells of it.
func (t *ClientThrottler) Allow(now time.Duration, draw float64) bool {
	if draw >= t.Probability(now) {
		return true
	}
	t.requests.Add(1)
	return false
}

// Done counts a request that Ask let pass, once it is known whether the
// upstream took it. For one of which that stays unknown, such as one whose
// client left, it is not called.
func (t *ClientThrottler) Done(accepted bool) {
	if accepted {
		t.accepts.Add(1)
	}
	t.requests.Add(1)
}

// Probability is that of a request not being sent now.
func (t *ClientThrottler) Probability(now time.Duration) float64 {
	if int64(now) >= t.decayAt.Load() {
		t.decay(now)
	}
	accepts := float64(t.accepts.Load()) - math.Float64frombits(t.decayed[1].Load())
	requests := float64(t.requests.Load()) - math.Float64frombits(t.decayed[0].Load())
	return max(0, (requests-clientThrottlingFactor*max(accepts, 0))/(max(requests, 0)+1))
}

// decay forgets what the time since the last call takes away. Whoever comes
// while another reckons goes on with the counts as they are.
func (t *ClientThrottler) decay(now time.Duration) {
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	if int64(now) < t.decayAt.Load() {
		return
	}
	keeps := math.Exp(-float64(now-t.at) / float64(clientThrottlingMean))
	t.at = now
	for i, sum := range [...]int64{t.requests.Load(), t.accepts.Load()} {
		live := float64(sum) - math.Float64frombits(t.decayed[i].Load())
		t.decayed[i].Store(math.Float64bits(float64(sum) - live*keeps))
	}
	t.decayAt.Store(int64(now + clientThrottlingStep))
}

// UpstreamAccepted reports whether an attempt shows that the upstream takes requests, and
// whether it shows anything of that: not what was surely never seen by it for a
// reason of our own pooling. 429, 502, 503 and 504 are rejections, as is no
// answer at all.
func (a *Attempt) UpstreamAccepted() (accepted, known bool) {
	switch {
	case a.Cause == CauseIdleClose || a.Cause == CauseRefusedStream:
		return false, false
	case a.Cause != CauseStatus:
		return false, true
	}
	return a.Status != 429 && (a.Status < 502 || a.Status > 504), true
}
