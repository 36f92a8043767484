package advise

import (
	"math"
	"strconv"
	"time"
)

// handy are round numbers, up to a power of ten.
var handy = []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10}

// roundUp returns the smallest handy duration that is at least d, in whole milliseconds.
func roundUp(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	s := d.Seconds()
	power := math.Pow(10, math.Floor(math.Log10(s)))
	for _, h := range handy {
		if h*power >= s-1e-9 {
			return toMillisecond(h * power)
		}
	}
	return toMillisecond(10 * power)
}

// roundDown returns the largest handy duration below d.
func roundDown(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	s := d.Seconds()
	power := math.Pow(10, math.Floor(math.Log10(s)))
	best := power
	for _, h := range handy {
		if h*power <= s+1e-9 {
			best = h * power
		}
	}
	return toMillisecond(best)
}

func toMillisecond(s float64) time.Duration {
	return time.Duration(math.Round(s*1000)) * time.Millisecond
}

// number formats without trailing zeros.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// round2 rounds small numbers to two digits and others to integers.
func round2(f float64) float64 {
	if f >= 10 {
		return math.Round(f)
	}
	return math.Round(f*100) / 100
}

// percent formats a share with the digits that matter.
func percent(share float64) string {
	switch p := 100 * share; {
	case p == 0:
		return "0 %"
	case p < 0.01:
		return "less than 0.01 %"
	case p < 10:
		return strconv.FormatFloat(p, 'f', 2, 64) + " %"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
}

func atMost(share float64) string {
	if share == 0 {
		return "none"
	}
	return "at most " + percent(share)
}
