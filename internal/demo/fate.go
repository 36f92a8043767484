package demo

import (
	"math/rand/v2"
	"time"
)

// fate is how the flaky upstream handles one attempt.
type fate uint8

const (
	fine        fate = iota // 200 after a few milliseconds
	slow                    // 200 after slowAnswer
	unavailable             // 503
	throttled               // 429 with Retry-After: 1
	cut                     // the connection is reset after the request was read
)

// Shares of attempts, in [0, 1]. Together with the bursts, about one attempt in seven fails. That
// is enough to see something in ten seconds, and few enough that the default retry budget, 20 % of
// requests, mostly suffices.
const (
	shareThrottled = 0.02
	shareReset     = 0.03
	shareSlow      = 0.04
)

// A burst of 503 occurs once every burstEvery, at a random time in it, and lasts between burstMin
// and burstMax. During a burst an attempt fails with probability burstShare. With a first wait of
// up to 100 ms and three retries, most requests outlast one.
const (
	burstEvery = 2 * time.Second
	burstMin   = 150 * time.Millisecond
	burstMax   = 450 * time.Millisecond
	burstShare = 0.6
)

// Response times of the upstream.
const (
	fineAnswer = 3 * time.Millisecond
	slowAnswer = 300 * time.Millisecond
)

// stream separates the draws for different purposes.
type stream uint64

const (
	attemptStream stream = iota
	burstStream
	callStream
	bodyStream
)

// draw returns a random source for item number n of a stream, always the same one for a seed. n is
// below 2^56.
func draw(seed uint64, s stream, n uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(s)<<56|n))
}

// weather decides every fate. It is a pure function of the seed, so both sides of the demo get the
// same failures. It is safe for concurrent use.
type weather struct{ seed uint64 }

// fate returns the fate of an attempt (1 is the first) of a request, at a time since the start. The
// first attempts of one request on both sides differ only if a burst begins or ends between them.
func (w weather) fate(at time.Duration, request, attempt uint64) fate {
	r := draw(w.seed, attemptStream, request<<8|min(attempt, 0xff))
	inBurst, other := r.Float64(), r.Float64()
	if w.burst(at) && inBurst < burstShare {
		return unavailable
	}
	for _, c := range [...]struct {
		share float64
		fate  fate
	}{{shareThrottled, throttled}, {shareReset, cut}, {shareSlow, slow}} {
		if other -= c.share; other < 0 {
			return c.fate
		}
	}
	return fine
}

// burst reports whether at is in a burst.
func (w weather) burst(at time.Duration) bool {
	period := at / burstEvery
	r := draw(w.seed, burstStream, uint64(period))
	length := burstMin + time.Duration(r.Float64()*float64(burstMax-burstMin))
	begin := period*burstEvery + time.Duration(r.Float64()*float64(burstEvery-length))
	return at >= begin && at < begin+length
}
