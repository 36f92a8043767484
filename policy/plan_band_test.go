package policy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// bandCases returns all strategies, with defaults and with options that change their band.
func bandCases(t *testing.T) map[string]backoff.Strategy {
	t.Helper()
	cases := map[string]backoff.Strategy{
		"slots that stay":       mustNew(t, "slots", backoff.Options{Stay: true}),
		"normal, wide":          mustNew(t, "normal", backoff.Options{Factor: 1.5, Jitter: 0.3}),
		"normal, soon capped":   mustNew(t, "normal", backoff.Options{Base: time.Second, Factor: 2.7, Max: 10 * time.Second}),
		"normal, plus a second": mustNew(t, "normal", backoff.Options{Extra: time.Second}),
		"decorrelated, capped":  mustNew(t, "decorrelated", backoff.Options{Max: 2 * time.Second}),
		"additive, uncapped":    mustNew(t, "additive", backoff.Options{Max: time.Hour}),
		"of unknown range":      noRange{},
	}
	for _, name := range backoff.Strategies() {
		cases[name] = mustNew(t, name, backoff.Options{})
		cases[name+" plus 50ms"] = mustNew(t, name, backoff.Options{Extra: 50 * time.Millisecond})
	}
	return cases
}

// drawnBand compares draws with one column of a plan.
type drawnBand struct {
	below, above int // outside of the band
	low, high    time.Duration
}

func (d *drawnBand) add(v time.Duration, band backoff.Range) {
	if v < band.Min {
		d.below++
	}
	if v > band.Max {
		d.above++
	}
	if d.high == 0 && d.low == 0 {
		d.low = v
	}
	d.low, d.high = min(d.low, v), max(d.high, v)
}

// check compares the draws with the strategy's band. If it is bounded, no draw is outside.
// Otherwise one in a thousand is outside on either side, within statistical error.
func (d *drawnBand) check(t *testing.T, what string, draws int, bounded bool, band backoff.Range) {
	t.Helper()
	if bounded {
		if d.below+d.above > 0 {
			t.Errorf("%s: %d draws below %v, %d above %v, want none", what, d.below, band.Min, d.above, band.Max)
		}
		return
	}
	if band.Min == band.Max && d.low == d.high {
		return // the first wait of normal has no noise
	}
	for _, outside := range []int{d.below, d.above} {
		if least, most := draws/backoff.BandLeavesOut/2, draws/backoff.BandLeavesOut*2; outside < least || outside > most {
			t.Errorf("%s: of %d draws %d are below %v and %d above %v, want about %d each", what, draws, d.below, band.Min, d.above, band.Max, draws/backoff.BandLeavesOut)
			return
		}
	}
}

// The planned band is what the draws do: no wait exceeds a bound, and some come close to it.
func TestPlansBandIsThatOfTheDraws(t *testing.T) {
	const retries, draws = 12, 100_000
	for name, b := range bandCases(t) {
		for _, attempt := range []time.Duration{0, 300 * time.Millisecond} {
			o := PlanOptions{Attempt: attempt, Seed: 1}
			rows := Plan(b, retries, o)
			var waits, totals [retries]drawnBand
			o.Seed = 2
			o.draw(b, retries, draws, func(i int, wait, total time.Duration) {
				waits[i].add(wait, rows[i].Wait)
				totals[i].add(total, rows[i].Total)
			})
			for i, row := range rows {
				what := fmt.Sprintf("%s, attempts of %v, retry %d", name, attempt, i+1)
				waits[i].check(t, what+", wait", draws, backoff.Bounded(b), row.Wait)
				totals[i].check(t, what+", begin", draws, backoff.Bounded(b), row.Total)
				if low, high := waits[i].low, waits[i].high; high < row.Wait.Max/2 || low > 2*row.Wait.Min+row.Wait.Max/100 {
					t.Errorf("%s: %d draws were from %v to %v, far from the band %v to %v", what, draws, low, high, row.Wait.Min, row.Wait.Max)
				}
			}
		}
	}
}

// Long plans have fewer draws, but still a band.
func TestBandsOfALongPlan(t *testing.T) {
	rows := Plan(mustNew(t, "normal", backoff.Options{}), 3000, PlanOptions{})
	last := rows[2999]
	const atCap = 15 * time.Minute
	if last.Wait.Min > atCap*9/10 || last.Wait.Max < atCap*11/10 || last.Wait.Min < atCap/2 || last.Wait.Max > atCap*3/2 {
		t.Errorf("at the cap of %v: %+v", atCap, last.Wait)
	}
}

// The published curves: the wait of each retry, and when the cap is reached.
func TestNormalFollowsThePublishedCurves(t *testing.T) {
	for _, tc := range []struct {
		o     backoff.Options
		curve []float64 // seconds, without noise
	}{
		{backoff.Options{Base: 100 * time.Millisecond, Factor: 2.7, Jitter: 0.1, Max: 10 * time.Minute},
			[]float64{0.1, 0.27, 0.729, 1.9683, 5.31441, 14.348907, 38.742049, 104.603532, 282.429536, 600, 600, 600}},
		{backoff.Options{Base: time.Second, Factor: 1.5, Jitter: 0.1, Max: 5 * time.Minute},
			[]float64{1, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625, 17.085938, 25.628906, 38.443359, 57.665039,
				86.497559, 129.746338, 194.619507, 291.929260, 300, 300, 300}},
	} {
		b := mustNew(t, "normal", tc.o)
		r := seeded(37)
		const walks = 20_000
		sums := make([]float64, len(tc.curve))
		for range walks {
			next := walkRandom(b, PlanOptions{}, r)
			for i := range sums {
				w, _ := next(i)
				if i == 0 && w != tc.o.Base {
					t.Fatalf("the first wait is %v", w)
				}
				sums[i] += w.Seconds()
			}
		}
		for i, want := range tc.curve {
			tolerance := 0.02 * want
			if want > 0.6*tc.o.Max.Seconds() {
				tolerance = 0.15 * want // some walks are at the cap and some are not, so the mean is below both
			}
			if got := sums[i] / walks; math.Abs(got-want) > tolerance {
				t.Errorf("%v: retry %d waits %.3f s in the mean, the curve says %.3f", b, i+1, got, want)
			}
		}
	}
}

func mustNew(t testing.TB, name string, o backoff.Options) backoff.Strategy {
	t.Helper()
	b, err := backoff.New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
