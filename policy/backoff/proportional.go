package backoff

import (
	"fmt"
	"time"
)

// Proportional varies an exponential wait by a share of itself.
//
//	wait = c * (1 + U(-Jitter, Jitter)),  c = min(Base * Factor^n, Max/(1+Jitter))
//
// n counts from 0, and times are in nanoseconds. The mean is c. No wait exceeds Max, and waits at
// the cap keep their jitter. It spreads clients less than full jitter; use it if a wait should be close to c.
//
// Source: RandomizationFactor of Google's HTTP client library for Java, and of the libraries for Go and
// .NET that follow it.
type Proportional struct {
	Base, Max      time.Duration
	Factor, Jitter float64
}

func init() {
	register(kind{
		Info: Info{
			Name:     "proportional",
			Summary:  "A growing wait, give or take a share of it. For waits that should be close to what is set.",
			Formula:  "c * (1 + U(-jitter, jitter)), c = min(base*factor^n, max/(1+jitter))",
			Source:   "the randomization factor of Google's HTTP client library for Java",
			Defaults: Options{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 2, Jitter: 0.2},
		},
		make: func(o Options) Strategy { return Proportional{o.Base, o.Max, o.Factor, o.Jitter} },
	})
}

// side returns the wait without jitter, and the most that is added or subtracted.
func (b Proportional) side(s Step) (c, side time.Duration) {
	c = Grow(b.Base, ClampDuration(float64(b.Max)/(1+b.Jitter), b.Max), b.Factor, s.Retry)
	return c, ClampDuration(float64(c)*b.Jitter, c)
}

// Wait returns c, give or take Jitter times c. It draws once.
func (b Proportional) Wait(s Step, r Rand) time.Duration {
	c, side := b.side(s)
	return c - side + UpTo(r, 2*side)
}

// Range returns [c - side, c + side] with mean c.
func (b Proportional) Range(s Step) Range {
	c, side := b.side(s)
	return Range{Min: c - side, Mean: c, Max: c + side}
}

func (b Proportional) String() string {
	return fmt.Sprintf("proportional base=%v factor=%v jitter=%v max=%v", b.Base, b.Factor, b.Jitter, b.Max)
}
