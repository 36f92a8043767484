package plot

import (
	"math"
	"strconv"
)

// Tick is a position on an axis. A minor tick has no label.
type Tick struct {
	Value float64
	Label string
}

// Ticks returns round values within s, ascending: about n with labels, and never more than 2n; n >=
// 2.
func (a *Axis) Ticks(s Span, n int) []Tick {
	n = max(n, 2)
	if a.Log {
		return a.logTicks(s, n)
	}
	step := a.step((s.High - s.Low) / float64(n))
	slack := min(step, s.High-s.Low) * 1e-9 // tolerance for ticks at the ends
	var ticks []Tick
	for i := math.Ceil((s.Low - slack) / step); i*step <= s.High+slack; i++ {
		if i+1 == i { // the numbers are so large that adding 1 has no effect
			break
		}
		v := i*step + 0      // 0 and not -0
		if v < s.Low-slack { // rounded down beyond the end, for large numbers in a small span
			continue
		}
		ticks = append(ticks, Tick{v, a.label(v, step)})
	}
	return ticks
}

// Above a minute, decimal steps are not round durations.
var durationSteps = []float64{
	1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
	3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400,
}

const day = 86400

// step returns the smallest round step that is at least rough.
func (a *Axis) step(rough float64) float64 {
	switch {
	case a.Unit == Count:
		return max(1, round125(rough))
	case a.Unit == Seconds && rough > day:
		return day * round125(rough/day)
	case a.Unit == Seconds && rough > 0.5:
		for _, step := range durationSteps {
			if step >= rough {
				return step
			}
		}
	}
	return round125(rough)
}

// round125 returns the first of ..., 0.5, 1, 2, 5, 10, ... that is at least v.
func round125(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logTicks uses the finest grid with at most n labels. If even the coarsest grid has more, it omits
// labels.
func (a *Axis) logTicks(s Span, n int) []Tick {
	var values []float64
	for _, grid := range [][]float64{{1, 2, 3, 5}, {1, 2, 5}, {1, 3}, {1}} {
		if values = a.grid(s, grid); len(values) <= n {
			break
		}
	}
	every := (len(values) + n - 1) / n
	ticks := make([]Tick, len(values))
	for i, v := range values {
		ticks[i].Value = v
		if i%max(every, 1) == 0 {
			ticks[i].Label = a.label(v, v)
		}
	}
	return ticks
}

// grid returns the multiples within s of each decade, and of each of the larger units of time.
func (a *Axis) grid(s Span, multiples []float64) []float64 {
	var values []float64
	slack := 1e-9 * min(s.Low, s.High-s.Low) // tolerance for ticks at the ends
	for base := a.firstBase(s.Low); base <= s.High; base = a.nextBase(base) {
		for _, m := range multiples {
			if v := base * m; v < a.nextBase(base)*(1-1e-9) && v >= s.Low-slack && v <= s.High+slack {
				values = append(values, v)
			}
		}
	}
	return values
}

// firstBase returns the base of the decade or unit of v > 0, or one before it.
func (a *Axis) firstBase(v float64) float64 {
	if a.Unit == Seconds && v >= 1 {
		return 1
	}
	return max(math.Pow(10, math.Floor(math.Log10(v))), smallest)
}

// nextBase returns ten times base; for seconds the next of 1s, 10s, 1m, 10m, 1h, 10h, 1d, 10d, ...
func (a *Axis) nextBase(base float64) float64 {
	next := exact10(base * 10)
	if a.Unit != Seconds {
		return next
	}
	for _, unit := range []float64{60, 3600, day} {
		if base < unit && next > unit {
			return unit
		}
	}
	return next
}

// exact10 removes rounding errors from a power of ten.
func exact10(v float64) float64 {
	power := math.Pow(10, math.Round(math.Log10(v)))
	if math.Abs(v/power-1) < 1e-6 {
		return power
	}
	return v
}

// label formats v with the digits that step needs.
func (a *Axis) label(v, step float64) string {
	if a.Unit == Seconds {
		return Duration(v)
	}
	switch abs := math.Abs(v); {
	case abs >= 1e15 || abs > 0 && abs < 1e-4:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case abs >= 1e9:
		return short(v/1e9, step/1e9) + "G"
	case abs >= 1e6:
		return short(v/1e6, step/1e6) + "M"
	case abs >= 1e4:
		return short(v/1e3, step/1e3) + "k"
	}
	return short(v, step)
}

// short formats v with at most as many decimals as step.
func short(v, step float64) string {
	decimals := 0
	for s := math.Abs(step); decimals < 9 && math.Abs(s-math.Round(s)) > 1e-6*s; s *= 10 {
		decimals++
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Duration formats seconds for people: 250ms, 1.5s, 2m, 1h30m, 3d. It keeps three digits below a
// second and the two largest units above.
func Duration(seconds float64) string {
	switch abs := math.Abs(seconds); {
	case abs == 0:
		return "0"
	case abs < 0.9995e-6:
		return strconv.FormatFloat(seconds*1e9, 'g', 3, 64) + "ns"
	case abs < 0.9995e-3:
		return strconv.FormatFloat(seconds*1e6, 'g', 3, 64) + "us"
	case abs < 0.9995:
		return strconv.FormatFloat(seconds*1e3, 'g', 3, 64) + "ms"
	case abs < 60:
		return strconv.FormatFloat(math.Round(seconds*1000)/1000, 'f', -1, 64) + "s"
	case abs < 3600:
		return two(seconds, 60, "m", 1, "s")
	case abs < day:
		return two(seconds, 3600, "h", 60, "m")
	}
	if math.Abs(seconds) >= 1e5*day {
		return strconv.FormatFloat(seconds/day, 'g', 3, 64) + "d"
	}
	return two(seconds, day, "d", 3600, "h")
}

func two(v, large float64, largeName string, small float64, smallName string) string {
	sign := ""
	if v < 0 {
		sign, v = "-", -v
	}
	smalls := math.Round(v / small)
	per := large / small
	text := sign + strconv.FormatFloat(math.Floor(smalls/per), 'f', 0, 64) + largeName
	if rest := math.Mod(smalls, per); rest > 0 {
		text += strconv.FormatFloat(rest, 'f', 0, 64) + smallName
	}
	return text
}
