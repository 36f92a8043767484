package advise

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// handy are the numbers that people write, up to a power of ten.
var handy = []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10}

// roundUp is the next handy duration not below d, in steps of milliseconds.
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

// roundDown is the handy duration before d.
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

// number is without needless zeros.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// round2 keeps two digits of what is small and none after the point of what is not.
func round2(f float64) float64 {
	if f >= 10 {
		return math.Round(f)
	}
	return math.Round(f*100) / 100
}

// percent is a share with as many digits as say something.
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

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
