package policy

import (
	"math"
	"math/rand/v2"
	"time"
)

// Step is where a request stands when a wait is asked for.
type Step struct {
	Retry    int           // 0 before the first retry
	Previous time.Duration // the wait before; 0 when Retry is 0
	Elapsed  time.Duration // since the first attempt began, waits and attempts
}

// Rand is a source of randomness. *math/rand/v2.Rand satisfies it, so a test
// or a simulation passes a seeded one; see Shared for serving.
type Rand interface {
	Int64N(n int64) int64 // uniform in [0, n); n > 0
	Float64() float64     // uniform in [0, 1)
	NormFloat64() float64 // normal, mean 0, standard deviation 1
}

// Backoff says how long to wait before a retry. Implementations are pure
// values: safe for concurrent use when r is, never negative, never
// overflowing, however large the step. Make one with New.
type Backoff interface {
	Wait(s Step, r Rand) time.Duration
}

// Range is what a wait at one step can be.
type Range struct {
	Min, Mean, Max time.Duration
}

// Ranger is a Backoff that knows its theory: shortest, mean and longest wait
// at a step. All strategies of this package do; Plan and the jitter on top of
// Retry-After use it. Where a distribution has no end (see Bounded), Min and Max
// are four standard deviations from the mean and leave out 1 wait in 15 000 of
// those at that step, after that wait before.
type Ranger interface {
	Range(s Step) Range
}

// Bounded reports whether the waits of b have ends that none is beyond: true for
// all strategies of this package but normal, and for any that does not wait.
func Bounded(b Backoff) bool {
	if b == nil {
		return true
	}
	if e, ok := b.(interface{ endless() bool }); ok {
		return !e.endless()
	}
	_, known := b.(Ranger)
	return known
}

// Shared is a Rand over the generator of the runtime: seeded at random, safe
// for concurrent use, and it does not allocate.
func Shared() Rand { return shared{} }

type shared struct{}

func (shared) Int64N(n int64) int64 { return rand.Int64N(n) }
func (shared) Float64() float64     { return rand.Float64() }
func (shared) NormFloat64() float64 { return rand.NormFloat64() }

// grow is min(base * factor^n, limit). The power is a float that becomes +Inf
// where an integer would overflow, so n may be anything.
func grow(base, limit time.Duration, factor float64, n int) time.Duration {
	f := float64(base) * math.Pow(factor, float64(max(n, 0)))
	return clampDuration(f, limit)
}

// clampDuration is f nanoseconds held within [0, limit]; NaN gives limit.
func clampDuration(f float64, limit time.Duration) time.Duration {
	switch {
	case f < 0:
		return 0
	case f < float64(limit):
		return time.Duration(f)
	}
	return limit
}

// upTo is uniform in [0, d], both ends included; 0 when d is not positive.
func upTo(r Rand, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	if d == Forever {
		d-- // d+1 must be an int64
	}
	return time.Duration(r.Int64N(int64(d) + 1))
}

// cappedUniform is the range of min(U(low, high), limit): the part of the
// uniform draw above the limit counts as the limit.
func cappedUniform(low, high, limit time.Duration) Range {
	if low >= limit {
		return Range{limit, limit, limit}
	}
	top := min(high, limit)
	mean := float64(low)/2 + float64(top)/2
	if high > limit {
		above := float64(high-limit) / float64(high-low)
		mean = (1-above)*mean + above*float64(limit)
	}
	return Range{Min: low, Mean: time.Duration(mean), Max: top}
}

// addUp is a+b for a, b >= 0, Forever where that overflows.
func addUp(a, b time.Duration) time.Duration {
	if b > Forever-a {
		return Forever
	}
	return a + b
}
