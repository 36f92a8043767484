package policy

import (
	"fmt"
	"time"
)

// EqualJitter keeps half of the exponential wait and draws the other half.
//
//	wait = c/2 + U(0, c/2),  c = min(Base * Factor^n, Max)
//
// n counts from 0, times are in nanoseconds. The mean is 3c/4. For when a wait
// of almost nothing would be useless.
//
// Source: "Exponential Backoff and Jitter", AWS Architecture Blog, 2015,
// there "Equal Jitter".
type EqualJitter struct {
	Base, Max time.Duration
	Factor    float64
}

func init() {
	register(strategy{
		Info: Info{
			Name:     "equal-jitter",
			Summary:  "Half of a growing wait is fixed, half random: never almost nothing.",
			Formula:  "c/2 + U(0, c/2), c = min(base*factor^n, max)",
			Source:   "Exponential Backoff and Jitter, AWS Architecture Blog, 2015",
			Defaults: Options{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 2},
		},
		make: func(o Options) Backoff { return EqualJitter{o.Base, o.Max, o.Factor} },
	})
}

// Wait is drawn once.
func (b EqualJitter) Wait(s Step, r Rand) time.Duration {
	c := grow(b.Base, b.Max, b.Factor, s.Retry)
	return c - c/2 + upTo(r, c/2)
}

// Range is [c/2, c] with mean 3c/4.
func (b EqualJitter) Range(s Step) Range {
	c := grow(b.Base, b.Max, b.Factor, s.Retry)
	return Range{Min: c - c/2, Mean: c - c/4, Max: c}
}

func (b EqualJitter) String() string {
	return fmt.Sprintf("equal-jitter base=%v factor=%v max=%v", b.Base, b.Factor, b.Max)
}
