package policy

import (
	"fmt"
	"math"
	"time"
)

// Ratio is chosen by wish: after a first wait of a, every further wait is
// about p times the time that has passed already. Whoever has waited a minute
// does not mind another p minutes, and is told of a recovery at most that
// much too late.
//
//	r = 1 + p
//	wait after wall-clock time T = min(a + (r-1) T, Max)
//
// With attempts that take no time this is a geometric series: T_n =
// a (r^n - 1)/(r - 1) is when retry n begins, t_n = a r^n is the wait after
// it, and t_n = t_(n+1)/r. Times are in nanoseconds, T is Step.Elapsed. It has
// no randomness; see Options.Extra.
//
// Source: the closed form of the geometric series. The methods below answer
// the questions one asks before choosing; they leave Max out.
type Ratio struct {
	First time.Duration // a, > 0
	Ratio float64       // p, > 0
	Max   time.Duration // cap of a wait
}

func init() {
	register(strategy{
		Info: Info{
			Name:     "ratio",
			Summary:  "Wait a chosen fraction of the time that has passed; for choosing by how late a recovery may be noticed.",
			Formula:  "min(base + ratio*T, max), T the time since the first attempt",
			Source:   "closed form of the geometric series",
			Defaults: Options{Base: time.Second, Max: time.Hour, Ratio: 1},
		},
		make: func(o Options) Backoff { return Ratio{First: o.Base, Ratio: o.Ratio, Max: o.Max} },
	})
}

// Wait draws nothing.
func (b Ratio) Wait(s Step, _ Rand) time.Duration { return min(b.After(s.Elapsed), b.Max) }

// Range is one value.
func (b Ratio) Range(s Step) Range {
	w := b.Wait(s, nil)
	return Range{w, w, w}
}

func (b Ratio) String() string {
	return fmt.Sprintf("ratio base=%v ratio=%v max=%v", b.First, b.Ratio, b.Max)
}

// Growth is r = 1 + p, the factor from one wait to the next.
func (b Ratio) Growth() float64 { return 1 + b.Ratio }

// After is the wait that follows when time t has passed: a + (r-1) t.
func (b Ratio) After(t time.Duration) time.Duration {
	return clampDuration(float64(b.First)+b.Ratio*float64(max(t, 0)), Forever)
}

// Elapsed is when retry n begins: T_n = a (r^n - 1)/(r - 1). n may be a
// fraction; below 0 it counts as 0.
func (b Ratio) Elapsed(n float64) time.Duration {
	// expm1 and log1p keep their digits for a small p.
	f := math.Expm1(max(n, 0)*math.Log1p(b.Ratio)) / b.Ratio
	return clampDuration(math.Round(float64(b.First)*f), Forever)
}

// Nth is the wait after n retries: t_n = a r^n.
func (b Ratio) Nth(n float64) time.Duration {
	return clampDuration(float64(b.First)*math.Pow(b.Growth(), max(n, 0)), Forever)
}

// Before is the wait that came before one of length next: t_n = t_(n+1)/r.
func (b Ratio) Before(next time.Duration) time.Duration {
	return clampDuration(float64(next)/b.Growth(), Forever)
}

// Tries is how many retries begin within time t: n = log_r(1 + (r-1) t/a), as
// a fraction; its whole part have begun at t.
func (b Ratio) Tries(t time.Duration) float64 {
	return math.Log1p(b.Ratio*float64(max(t, 0))/float64(b.First)) / math.Log1p(b.Ratio)
}

// Noticed is when the first retry begins at or after a recovery at time t, so
// when a recovery at t is noticed. A retry that misses t by rounding (1 part in
// 10^12) notices it.
func (b Ratio) Noticed(t time.Duration) time.Duration {
	for n := math.Floor(b.Tries(t)); ; n++ {
		at := b.Elapsed(n)
		if at == Forever || at+at/1e12+1 >= t {
			return at
		}
	}
}

// Multiplies is the factor by which the number of tries changes in the long
// run when the ratio becomes other: log r / log r_other. Over a short time the
// factor is smaller; divide Tries of both for that.
func (b Ratio) Multiplies(other Ratio) float64 {
	return math.Log1p(b.Ratio) / math.Log1p(other.Ratio)
}
