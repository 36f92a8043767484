// Package backoff computes how long to wait before a retry. A Strategy computes the wait
// from plain values (Step) and a source of randomness. New makes one of nine by name. The
// types document their formulas and sources.
package backoff

import (
	"math"
	"math/rand/v2"
	"time"
)

// Step is the state of a request when a wait is computed.
type Step struct {
	Retry    int           // 0 before the first retry
	Previous time.Duration // the previous wait; 0 when Retry is 0
	Elapsed  time.Duration // since the first attempt began, waits and attempts
}

// Rand is a source of randomness. *math/rand/v2.Rand implements it, so a test or a
// simulation can pass a seeded one. In production use Shared.
type Rand interface {
	Int64N(n int64) int64 // uniform in [0, n); n > 0
	Float64() float64     // uniform in [0, 1)
	NormFloat64() float64 // normal, mean 0, standard deviation 1
}

// Strategy computes how long to wait before a retry. Implementations are pure values. They
// are safe for concurrent use if r is. The wait is never negative and never overflows,
// however large the step. Make one with New.
type Strategy interface {
	Wait(s Step, r Rand) time.Duration
}

// Range is the distribution of a wait at one step.
type Range struct {
	Min, Mean, Max time.Duration
}

// Ranger is implemented by a Strategy that knows its shortest, mean and longest wait at a
// step. All strategies of this package implement it; policy.Plan and the jitter on top of
// Retry-After use it. If a distribution is unbounded (see Bounded), Min and Max are four
// standard deviations from the mean. They leave out 1 wait in 15 000 of those at that step,
// given the previous wait.
type Ranger interface {
	Range(s Step) Range
}

// Bounded reports whether the waits of b have a maximum. It is true for all strategies of
// this package except normal with jitter, and for nil, which does not wait.
func Bounded(b Strategy) bool {
	if b == nil {
		return true
	}
	if e, ok := b.(interface{ endless() bool }); ok {
		return !e.endless()
	}
	_, known := b.(Ranger)
	return known
}

// Spreads reports whether the waits of b after a failed retry are random, so that clients that failed
// together do not come back together.
func Spreads(b Strategy) bool {
	l, ok := b.(Ranger)
	if !ok {
		return false
	}
	first := l.Range(Step{}).Max
	r := l.Range(Step{Retry: 1, Previous: first, Elapsed: first})
	return r.Max > r.Min
}

// Shared returns a Rand over the runtime's generator. It is seeded at random, safe for
// concurrent use, and does not allocate.
func Shared() Rand { return shared{} }

type shared struct{}

func (shared) Int64N(n int64) int64 { return rand.Int64N(n) }
func (shared) Float64() float64     { return rand.Float64() }
func (shared) NormFloat64() float64 { return rand.NormFloat64() }

// Grow returns min(base * factor^n, limit). The power is a float that becomes +Inf instead
// of overflowing, so n may be any value.
func Grow(base, limit time.Duration, factor float64, n int) time.Duration {
	f := float64(base) * math.Pow(factor, float64(max(n, 0)))
	return ClampDuration(f, limit)
}

// ClampDuration returns f nanoseconds limited to [0, limit]; for NaN it returns limit.
func ClampDuration(f float64, limit time.Duration) time.Duration {
	switch {
	case f < 0:
		return 0
	case f < float64(limit):
		return time.Duration(f)
	}
	return limit
}

// UpTo returns a duration uniform in [0, d], both ends included; 0 if d is not positive.
func UpTo(r Rand, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	if d == Forever {
		d-- // d+1 must be an int64
	}
	return time.Duration(r.Int64N(int64(d) + 1))
}

// AddUp returns a+b for a, b >= 0, or Forever if the sum overflows.
func AddUp(a, b time.Duration) time.Duration {
	if b > Forever-a {
		return Forever
	}
	return a + b
}

// Forever is the longest duration. It stands for "never", such as a deadline that is not
// set.
const Forever = time.Duration(1<<63 - 1)

// WaitOf returns the wait of b; 0 if b is nil. It replaces a negative wait with 0.
func WaitOf(b Strategy, s Step, r Rand) time.Duration {
	if b == nil {
		return 0
	}
	return max(b.Wait(s, r), 0)
}

// FloorOf returns the wait that b never falls below, not even if an upstream asks for a shorter one;
// 0 if there is none. Only fixed has one: elsewhere an upstream that names a time knows better.
func FloorOf(b Strategy) time.Duration {
	switch s := b.(type) {
	case Fixed:
		return s.Base
	case extra:
		return FloorOf(s.Strategy)
	}
	return 0
}

// CeilingOf returns the longest wait of b at this step. If b is no Ranger, it returns a
// wait drawn from it instead.
func CeilingOf(b Strategy, s Step, r Rand) time.Duration {
	if l, ok := b.(Ranger); ok {
		return l.Range(s).Max
	}
	return WaitOf(b, s, r)
}
