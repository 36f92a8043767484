package policy

import (
	"fmt"
	"time"
)

// Decorrelated draws each wait from a range that the wait before it sets, so
// that two clients who began together soon have nothing in common.
//
//	wait = min(Max, U(Base, max(Base, previous * Factor)))
//
// previous is Base at first; times are in nanoseconds, U is uniform with both
// ends. The cap is applied after the draw, so at the cap many waits are equal.
//
// Source: "Exponential Backoff and Jitter", AWS Architecture Blog, 2015,
// there "Decorrelated Jitter", with factor 3.
type Decorrelated struct {
	Base, Max time.Duration
	Factor    float64
}

func init() {
	register(strategy{
		Info: Info{
			Name:     "decorrelated",
			Summary:  "Each wait is drawn from a range set by the one before; grows fast, by luck.",
			Formula:  "min(max, U(base, previous*factor)), previous = base at first",
			Source:   "Exponential Backoff and Jitter, AWS Architecture Blog, 2015",
			Defaults: Options{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 3},
		},
		make: func(o Options) Backoff { return Decorrelated{o.Base, o.Max, o.Factor} },
	})
}

// high is the upper end of the draw, before the cap.
func (b Decorrelated) high(s Step) time.Duration {
	previous := max(s.Previous, b.Base)
	if s.Retry <= 0 {
		previous = b.Base
	}
	return max(b.Base, grow(previous, Forever/2, b.Factor, 1))
}

// Wait is drawn once.
func (b Decorrelated) Wait(s Step, r Rand) time.Duration {
	return min(b.Max, b.Base+upTo(r, b.high(s)-b.Base))
}

// Range has the mean of a uniform draw of which the part above Max counts as
// Max.
func (b Decorrelated) Range(s Step) Range { return cappedUniform(b.Base, b.high(s), b.Max) }

func (b Decorrelated) String() string {
	return fmt.Sprintf("decorrelated base=%v factor=%v max=%v", b.Base, b.Factor, b.Max)
}
