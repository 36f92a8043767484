package backoff

import (
	"fmt"
	"time"
)

// EqualJitter keeps half of the exponential wait and draws the other half.
//
//	wait = c/2 + U(0, c/2),  c = min(Base * Factor^n, Max)
//
// n counts from 0, and times are in nanoseconds. The mean is 3c/4. Use it if a wait near 0 would be
// useless.
//
// Source: "Exponential Backoff and Jitter", AWS Architecture Blog, 2015, there "Equal Jitter".
type EqualJitter struct {
	Base, Max time.Duration
	Factor    float64
}

func init() {
	register(kind{
		Info: Info{
			Name:     "equal-jitter",
			Summary:  "Half of a growing wait is fixed, half is random. Never near zero.",
			Formula:  "c/2 + U(0, c/2), c = min(base*factor^n, max)",
			Source:   "Exponential Backoff and Jitter, AWS Architecture Blog, 2015",
			Defaults: Options{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 2},
		},
		make: func(o Options) Strategy { return EqualJitter{o.Base, o.Max, o.Factor} },
	})
}

// Wait returns c/2 + U(0, c/2). It draws once.
func (b EqualJitter) Wait(s Step, r Rand) time.Duration {
	c := Grow(b.Base, b.Max, b.Factor, s.Retry)
	return c - c/2 + UpTo(r, c/2)
}

// Range returns [c/2, c] with mean 3c/4.
func (b EqualJitter) Range(s Step) Range {
	c := Grow(b.Base, b.Max, b.Factor, s.Retry)
	return Range{Min: c - c/2, Mean: c - c/4, Max: c}
}

func (b EqualJitter) String() string {
	return fmt.Sprintf("equal-jitter base=%v factor=%v max=%v", b.Base, b.Factor, b.Max)
}
