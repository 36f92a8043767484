package backoff

import (
	"fmt"
	"time"
)

// Additive doubles a whole wait and adds a random one of fixed size. The cap applies to the whole wait,
// so that the random part remains at the cap.
//
//	wait = min(Base * Factor^n, Max - Spread) + U(0, Spread)
//
// n counts from 0, times are in nanoseconds, and U is uniform with both ends and drawn anew each time.
// A Spread above Max counts as Max. With the defaults the wait is min(2^n s, 31 s) + up to 1000 ms.
//
// Source: "truncated exponential backoff" in the retry guides of Google Cloud (for instance Cloud
// Storage and IoT Core), for 5xx and 429; they name caps of 32 or 64 s. They cap the sum instead, and
// then all clients wait the same at the cap.
type Additive struct {
	Base, Max, Spread time.Duration
	Factor            float64
}

func init() {
	register(kind{
		Info: Info{
			Name:     "additive",
			Summary:  "Whole seconds that double, plus up to one second. Patient: for batch work.",
			Formula:  "min(base*factor^n, max - spread) + U(0, spread)",
			Source:   "truncated exponential backoff, Google Cloud retry guides",
			Defaults: Options{Base: time.Second, Max: 32 * time.Second, Factor: 2, Spread: time.Second},
		},
		make: func(o Options) Strategy {
			return Additive{Base: o.Base, Max: o.Max, Spread: o.Spread, Factor: o.Factor}
		},
	})
}

// parts returns the fixed part of the wait, and the most that the random one adds.
func (b Additive) parts(s Step) (fixed, spread time.Duration) {
	spread = min(b.Spread, b.Max)
	return Grow(b.Base, b.Max-spread, b.Factor, s.Retry), spread
}

// Wait returns min(Base * Factor^n, Max - Spread) + U(0, Spread). It always draws once.
func (b Additive) Wait(s Step, r Rand) time.Duration {
	fixed, spread := b.parts(s)
	return fixed + UpTo(r, spread)
}

// Range returns the range of a uniform draw.
func (b Additive) Range(s Step) Range {
	fixed, spread := b.parts(s)
	return Range{Min: fixed, Mean: fixed + spread/2, Max: fixed + spread}
}

func (b Additive) String() string {
	return fmt.Sprintf("additive base=%v factor=%v spread=%v max=%v", b.Base, b.Factor, b.Spread, b.Max)
}
