package backoff

import (
	"fmt"
	"time"
)

// Decorrelated draws each wait from a range that depends on the previous wait, so that two clients
// that start together soon diverge.
//
//	wait = U(Base, min(Max, max(Base, previous * Factor)))
//
// previous is Base at first. Times are in nanoseconds, and U is uniform with both ends. The cap
// applies to the range, so that waits are random at the cap too.
//
// Source: "Exponential Backoff and Jitter", AWS Architecture Blog, 2015, there "Decorrelated Jitter",
// with factor 3. It caps the draw instead, and then two of three waits are equal at the cap.
type Decorrelated struct {
	Base, Max time.Duration
	Factor    float64
}

func init() {
	register(kind{
		Info: Info{
			Name:     "decorrelated",
			Summary:  "Drawn from a range that depends on the previous wait. Spreads widely, but is hard to predict.",
			Formula:  "U(base, min(max, previous*factor)), previous = base at first",
			Source:   "Exponential Backoff and Jitter, AWS Architecture Blog, 2015",
			Defaults: Options{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 3},
		},
		make: func(o Options) Strategy { return Decorrelated{o.Base, o.Max, o.Factor} },
	})
}

// high returns the upper end of the draw.
func (b Decorrelated) high(s Step) time.Duration {
	previous := max(s.Previous, b.Base)
	if s.Retry <= 0 {
		previous = b.Base
	}
	return max(b.Base, Grow(previous, b.Max, b.Factor, 1))
}

// Wait returns U(Base, high). It draws once.
func (b Decorrelated) Wait(s Step, r Rand) time.Duration { return b.Base + UpTo(r, b.high(s)-b.Base) }

// Range returns the range of a uniform draw.
func (b Decorrelated) Range(s Step) Range {
	high := b.high(s)
	return Range{Min: b.Base, Mean: b.Base + (high-b.Base)/2, Max: high}
}

func (b Decorrelated) String() string {
	return fmt.Sprintf("decorrelated base=%v factor=%v max=%v", b.Base, b.Factor, b.Max)
}
