package backoff

import (
	"fmt"
	"time"
)

// Normal grows geometrically and adds normal noise, which the next step inherits.
//
//	first wait = Base, without noise
//	then   d = min(previous * Factor, Max)
//	       wait = max(0, d + N(0, Jitter * d))
//
// previous is the previous wait, noise included. Times are in nanoseconds, and N(0, s) is normal with
// standard deviation s. The cap applies before the noise, so waits at the cap keep their jitter and
// half of them exceed it. After a wait of 0 (only possible with a large Jitter) it restarts at Base.
//
// Source: the rule of reconnecting clients since Twisted's ReconnectingClientFactory (delay times
// factor, capped, then a normal variate around it), with a first wait that is not jittered.
type Normal struct {
	Base, Max      time.Duration
	Factor, Jitter float64
}

func init() {
	register(kind{
		Info: Info{
			Name:     "normal",
			Summary:  "Geometric growth with normal noise that the next wait inherits. For a few long-lived clients.",
			Formula:  "d + N(0, jitter*d), d = min(previous*factor, max); base at first",
			Source:   "reconnecting clients, after Twisted's ReconnectingClientFactory",
			Defaults: Options{Base: 100 * time.Millisecond, Max: 15 * time.Minute, Factor: 2, Jitter: 0.1},
		},
		make: func(o Options) Strategy {
			return Normal{Base: o.Base, Max: o.Max, Factor: o.Factor, Jitter: o.Jitter}
		},
	})
}

// center returns the wait before noise, and whether noise is added.
func (b Normal) center(s Step) (d time.Duration, noisy bool) {
	if s.Retry <= 0 || s.Previous <= 0 {
		return b.Base, false
	}
	return Grow(s.Previous, b.Max, b.Factor, 1), true
}

// Wait draws one normal variate, but none for the first wait.
func (b Normal) Wait(s Step, r Rand) time.Duration {
	d, noisy := b.center(s)
	if !noisy {
		return d
	}
	return ClampDuration(float64(d)*(1+b.Jitter*r.NormFloat64()), Forever)
}

// Range returns four standard deviations on either side of the mean, not below 0.
func (b Normal) Range(s Step) Range {
	d, noisy := b.center(s)
	if !noisy {
		return Range{d, d, d}
	}
	side := 4 * b.Jitter * float64(d)
	return Range{
		Min:  ClampDuration(float64(d)-side, d),
		Mean: d,
		Max:  ClampDuration(float64(d)+side, Forever),
	}
}

func (b Normal) endless() bool { return b.Jitter > 0 }

func (b Normal) String() string {
	return fmt.Sprintf("normal base=%v factor=%v jitter=%v max=%v", b.Base, b.Factor, b.Jitter, b.Max)
}
