package policy

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ClientThrottler rejects requests locally while the upstream rejects nearly all of them. A rejection
// costs the upstream work too, and with enough of them it does nothing else. A request is rejected
// with the probability
//
//	max(0, (requests - 2 accepts) / (requests + 1))
//
// where requests counts the requests whose result is known and those rejected here, and accepts
// counts the requests that the upstream accepted. Nothing is rejected until the upstream rejects half
// of its requests. An upstream that accepts c requests per second gets about 2c. An upstream that
// accepts none still gets about one request every ten seconds, which detects its recovery.
//
// Source: Google, Site Reliability Engineering, chapter 21 "Handling Overload", with its factor of 2.
// There the counts cover the last two minutes. Here they decay with a time constant of ten seconds,
// which is also the window of the retry budget: a request accepted ten seconds ago counts for 37 %.
// After an outage the share that is sent grows with the same constant. With n requests per second it
// takes about 10 s x ln(5 n) until all are sent: one minute at a hundred per second. Requests in
// flight do not count. Otherwise many requests at the start would look like rejections.
//
// All methods are safe for concurrent use and do not allocate. They take a lock at most once per
// second. now is monotonic time of any origin, not below 0, with the same origin for all calls. Calls
// may come slightly out of order. Make one with NewClientThrottler.
type ClientThrottler struct {
	requests atomic.Int64 // since the start
	accepts  atomic.Int64
	decayAt  atomic.Int64 // when the decay is computed next

	// decayed is the part of requests and accepts that has decayed, as the bits of a
	// float64. The rest counts.
	decayed [2]atomic.Uint64

	mu sync.Mutex    // held while the decay is computed
	at time.Duration // the time up to which the decay is computed
}

const (
	clientThrottlingFactor = 2
	clientThrottlingMean   = 10 * time.Second
	clientThrottlingStep   = time.Second
)

// NewClientThrottler returns a throttler that has seen no request and allows all.
func NewClientThrottler() *ClientThrottler { return new(ClientThrottler) }

// Allow reports whether a request may be sent; draw is uniform in [0, 1). A rejected
// request is counted at once, an allowed one when Done is called.
func (t *ClientThrottler) Allow(now time.Duration, draw float64) bool {
	if draw >= t.Probability(now) {
		return true
	}
	t.requests.Add(1)
	return false
}

// Done counts a request that Allow let pass, once it is known whether the upstream accepted
// it. Do not call it if that stays unknown, for example when the client left.
func (t *ClientThrottler) Done(accepted bool) {
	if accepted {
		t.accepts.Add(1)
	}
	t.requests.Add(1)
}

// Probability returns the probability that a request is rejected now, in [0, 1].
func (t *ClientThrottler) Probability(now time.Duration) float64 {
	if int64(now) >= t.decayAt.Load() {
		t.decay(now)
	}
	accepts := float64(t.accepts.Load()) - math.Float64frombits(t.decayed[1].Load())
	requests := float64(t.requests.Load()) - math.Float64frombits(t.decayed[0].Load())
	return max(0, (requests-clientThrottlingFactor*max(accepts, 0))/(max(requests, 0)+1))
}

// decay computes the decay since the last call. If another goroutine is computing it, decay
// returns at once and the counts stay as they are.
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

// UpstreamAccepted reports whether the attempt shows that the upstream accepts requests,
// and whether it shows anything at all. known is false for a stale connection and a refused
// stream. 429, 502, 503, 504 and every other failure without a response are rejections.
func (a *Attempt) UpstreamAccepted() (accepted, known bool) {
	switch {
	case a.Cause == CauseIdleClose || a.Cause == CauseRefusedStream:
		return false, false
	case a.Cause != CauseStatus:
		return false, true
	}
	return a.Status != 429 && (a.Status < 502 || a.Status > 504), true
}
