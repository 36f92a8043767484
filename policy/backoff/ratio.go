package backoff

import (
	"fmt"
	"math"
	"time"
)

// Ratio waits in proportion to the time that has passed: after a first wait of a, every further wait
// is about p times the elapsed time. So a recovery is detected at most that much too late: a client
// that has waited a minute can usually wait another p minutes.
//
//	r = 1 + p
//	wait after wall-clock time T = min(a + (r-1) T, Max)
//
// With attempts that take no time this is a geometric series. T_n = a (r^n - 1)/(r - 1) is when retry
// n begins, t_n = a r^n is the wait after it, and t_n = t_(n+1)/r. Times are in nanoseconds, and T is
// Step.Elapsed. It has no randomness; see Options.Extra.
//
// Source: the closed form of the geometric series. The methods below help to choose the parameters;
// they ignore Max.
type Ratio struct {
	First time.Duration // a, > 0
	Ratio float64       // p, > 0
	Max   time.Duration // cap of a wait
}

func init() {
	register(kind{
		Info: Info{
			Name:     "ratio",
			Summary:  "A fraction of the time that has passed. For a bound on how late a recovery is noticed.",
			Formula:  "min(base + ratio*T, max), T the time since the first attempt",
			Source:   "closed form of the geometric series",
			Defaults: Options{Base: time.Second, Max: time.Hour, Ratio: 1},
		},
		make: func(o Options) Strategy { return Ratio{First: o.Base, Ratio: o.Ratio, Max: o.Max} },
	})
}

// Wait returns min(a + (r-1) T, Max). It draws nothing.
func (b Ratio) Wait(s Step, _ Rand) time.Duration { return min(b.After(s.Elapsed), b.Max) }

// Range returns a single value.
func (b Ratio) Range(s Step) Range {
	w := b.Wait(s, nil)
	return Range{w, w, w}
}

func (b Ratio) String() string {
	return fmt.Sprintf("ratio base=%v ratio=%v max=%v", b.First, b.Ratio, b.Max)
}

// Growth returns r = 1 + p, the factor from one wait to the next.
func (b Ratio) Growth() float64 { return 1 + b.Ratio }

// After returns the wait after an elapsed time t: a + (r-1) t.
func (b Ratio) After(t time.Duration) time.Duration {
	return ClampDuration(float64(b.First)+b.Ratio*float64(max(t, 0)), Forever)
}

// Tries returns how many retries begin within time t: n = log_r(1 + (r-1) t/a), as a
// fraction. Its integer part is the number of retries begun at t.
func (b Ratio) Tries(t time.Duration) float64 {
	return math.Log1p(b.Ratio*float64(max(t, 0))/float64(b.First)) / math.Log1p(b.Ratio)
}

// Multiplies returns the factor by which the number of tries changes in the long run if the
// ratio becomes other: log r / log r_other. Over a short time the factor is smaller; divide
// Tries of both for that.
func (b Ratio) Multiplies(other Ratio) float64 {
	return math.Log1p(b.Ratio) / math.Log1p(other.Ratio)
}
