package backoff

import (
	"fmt"
	"time"
)

// FullJitter is the default: any wait up to an exponentially growing bound.
//
//	wait = U(0, c),  c = min(Base * Factor^n, Max)
//
// n counts from 0, times are in nanoseconds, and U is uniform with both ends. The mean is c/2. It
// spreads clients best and so loads a recovering upstream least, but a wait can be near 0.
//
// Source: "Exponential Backoff and Jitter", AWS Architecture Blog, 2015, there "Full Jitter".
type FullJitter struct {
	Base, Max time.Duration
	Factor    float64
}

func init() {
	register(kind{
		Info: Info{
			Name:     "full-jitter",
			Summary:  "Anything up to a growing bound. Spreads clients best: for most uses.",
			Formula:  "U(0, min(base*factor^n, max))",
			Source:   "Exponential Backoff and Jitter, AWS Architecture Blog, 2015",
			Defaults: Options{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 2},
		},
		make: func(o Options) Strategy { return FullJitter{o.Base, o.Max, o.Factor} },
	})
}

// Wait returns U(0, c). It draws once.
func (b FullJitter) Wait(s Step, r Rand) time.Duration {
	return UpTo(r, Grow(b.Base, b.Max, b.Factor, s.Retry))
}

// Range returns [0, c] with mean c/2.
func (b FullJitter) Range(s Step) Range {
	c := Grow(b.Base, b.Max, b.Factor, s.Retry)
	return Range{Min: 0, Mean: c / 2, Max: c}
}

func (b FullJitter) String() string {
	return fmt.Sprintf("full-jitter base=%v factor=%v max=%v", b.Base, b.Factor, b.Max)
}
