package policy

import (
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
type drawnBand struct{ below, above int } // outside of the band

func (d *drawnBand) add(v time.Duration, band backoff.Range) {
	if v < band.Min {
		d.below++
	}
	if v > band.Max {
		d.above++
	}
}

// extreme is a source of randomness that always draws the least value, or always the greatest.
type extreme struct{ greatest bool }

func (e extreme) Int64N(n int64) int64 {
	if e.greatest {
		return n - 1
	}
	return 0
}

func (extreme) Float64() float64     { panic("no strategy with a longest wait draws this") }
func (extreme) NormFloat64() float64 { panic("no strategy with a longest wait draws this") }

// The planned band of a bounded strategy is exact: the least and the greatest draws are its edges, and
// no other draw is outside.
func TestPlansBandIsThatOfTheDraws(t *testing.T) {
	const retries, draws = 12, 1000
	for name, b := range bandCases(t) {
		if !backoff.Bounded(b) {
			continue
		}
		for _, attempt := range []time.Duration{0, 300 * time.Millisecond} {
			o := PlanOptions{Attempt: attempt, Seed: 1, Samples: 1}
			rows := Plan(b, retries, o)
			least, greatest := walkRandom(b, o, extreme{}), walkRandom(b, o, extreme{greatest: true})
			for i, row := range rows {
				got := row
				got.Wait.Min, got.Total.Min = least(i)
				got.Wait.Max, got.Total.Max = greatest(i)
				if got != row {
					t.Errorf("%s, attempts of %v: extreme draws make %+v, planned %+v", name, attempt, got, row)
				}
			}
			var waits, totals drawnBand
			o.draw(b, retries, draws, func(i int, wait, total time.Duration) {
				waits.add(wait, rows[i].Wait)
				totals.add(total, rows[i].Total)
			})
			if waits != (drawnBand{}) || totals != (drawnBand{}) {
				t.Errorf("%s, attempts of %v: waits %+v and totals %+v draws outside, want none", name, attempt, waits, totals)
			}
		}
	}
}

// Without a longest wait, one draw in a thousand is below the band and one above. The counts vary
// by a sixth (standard error): by 10 % due to these draws, and by 14 % due to the plan's 50 000.
func TestPlansBandLeavesOutOneDrawInAThousand(t *testing.T) {
	const retries, draws, want = 12, 100_000, 100_000 / backoff.BandLeavesOut
	for name, b := range bandCases(t) {
		if backoff.Bounded(b) {
			continue
		}
		o := PlanOptions{Attempt: 300 * time.Millisecond, Seed: 1}
		rows := Plan(b, retries, o)
		var waits, totals [retries]drawnBand
		o.Seed = 2
		o.draw(b, retries, draws, func(i int, wait, total time.Duration) {
			waits[i].add(wait, rows[i].Wait)
			totals[i].add(total, rows[i].Total)
		})
		for i, row := range rows {
			for column, d := range map[*backoff.Range]drawnBand{&row.Wait: waits[i], &row.Total: totals[i]} {
				if column.Min == column.Max && d == (drawnBand{}) {
					continue // the first wait of normal has no noise
				}
				if min(d.below, d.above) < want/2 || max(d.below, d.above) > want*2 {
					t.Errorf("%s, retry %d: of %d draws %d are below %v and %d above %v, want about %d each",
						name, i+1, draws, d.below, column.Min, d.above, column.Max, want)
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
