package backoff

import (
	"fmt"
	"time"
)

// Additive doubles a whole wait and adds a random one of fixed size, then caps the sum. At the cap it
// stays at the cap.
//
//	wait = min(Base * Factor^n + U(0, Spread), Max)
//
// n counts from 0, times are in nanoseconds, and U is uniform with both ends and drawn anew each time.
// With the defaults that is min(2^n s + up to 1000 ms, 32 s). The cap applies to the sum, so at the
// cap the jitter is gone; see Options.Extra.
//
// Source: "truncated exponential backoff" in the retry guides of Google Cloud (for instance Cloud
// Storage and IoT Core), for 5xx and 429; they name caps of 32 or 64 s.
type Additive struct {
	Base, Max, Spread time.Duration
	Factor            float64
}

func init() {
	register(kind{
		Info: Info{
			Name:     "additive",
			Summary:  "Whole seconds that double, plus up to one second. Patient: for batch work.",
			Formula:  "min(base*factor^n + U(0, spread), max)",
			Source:   "truncated exponential backoff, Google Cloud retry guides",
			Defaults: Options{Base: time.Second, Max: 32 * time.Second, Factor: 2, Spread: time.Second},
		},
		make: func(o Options) Strategy {
			return Additive{Base: o.Base, Max: o.Max, Spread: o.Spread, Factor: o.Factor}
		},
	})
}

// Wait returns min(Base * Factor^n + U(0, Spread), Max). It always draws once.
func (b Additive) Wait(s Step, r Rand) time.Duration {
	return min(Grow(b.Base, b.Max, b.Factor, s.Retry)+UpTo(r, b.Spread), b.Max)
}

// Range returns the range of a capped uniform draw: in the mean, the part above Max counts
// as Max.
func (b Additive) Range(s Step) Range {
	low := Grow(b.Base, b.Max, b.Factor, s.Retry)
	return cappedUniform(low, low+b.Spread, b.Max)
}

func (b Additive) String() string {
	return fmt.Sprintf("additive base=%v factor=%v spread=%v max=%v", b.Base, b.Factor, b.Spread, b.Max)
}
