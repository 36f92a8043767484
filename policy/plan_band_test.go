package policy

import (
	"fmt"
	"testing"
	"time"
)

// bandCases are all strategies, as they come and with what changes their band.
func bandCases(t *testing.T) map[string]Backoff {
	t.Helper()
	cases := map[string]Backoff{
		"slots that stay":       mustNew(t, "slots", Options{Stay: true}),
		"normal, wide":          mustNew(t, "normal", Options{Factor: 1.5, Jitter: 0.3}),
		"normal, soon capped":   mustNew(t, "normal", Options{Base: time.Second, Factor: 2.7, Max: 10 * time.Second}),
		"normal, plus a second": mustNew(t, "normal", Options{Extra: time.Second}),
		"decorrelated, capped":  mustNew(t, "decorrelated", Options{Max: 2 * time.Second}),
		"additive, uncapped":    mustNew(t, "additive", Options{Max: time.Hour}),
		"of unknown range":      noRange{},
	}
	for _, name := range Strategies() {
		cases[name] = mustNew(t, name, Options{})
		cases[name+" plus 50ms"] = mustNew(t, name, Options{Extra: 50 * time.Millisecond})
	}
	return cases
}

// drawnBand is what draws make of one column of a plan.
type drawnBand struct {
	below, above int // outside of the band
	low, high    time.Duration
}

func (d *drawnBand) add(v time.Duration, band Range) {
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

// check holds the band of a strategy to the draws: if it has ends, nothing is
// outside; if not, one in a thousand on either side, within what chance does.
func (d *drawnBand) check(t *testing.T, what string, draws int, bounded bool, band Range) {
	t.Helper()
	if bounded {
		if d.below+d.above > 0 {
			t.Errorf("%s: %d draws below %v, %d above %v, want none", what, d.below, band.Min, d.above, band.Max)
		}
		return
	}
	if band.Min == band.Max && d.low == d.high {
		return // the first wait of normal
	}
	for _, outside := range []int{d.below, d.above} {
		if least, most := draws/bandLeavesOut/2, draws/bandLeavesOut*2; outside < least || outside > most {
			t.Errorf("%s: of %d draws %d are below %v and %d above %v, want about %d each", what, draws, d.below, band.Min, d.above, band.Max, draws/bandLeavesOut)
			return
		}
	}
}

// The band that plan prints and draws is what waits really do: no wait beyond
// an end, and an end that waits come near.
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
				waits[i].check(t, what+", wait", draws, Bounded(b), row.Wait)
				totals[i].check(t, what+", begin", draws, Bounded(b), row.Total)
				if low, high := waits[i].low, waits[i].high; high < row.Wait.Max/2 || low > 2*row.Wait.Min+row.Wait.Max/100 {
					t.Errorf("%s: %d draws were from %v to %v, far from the band %v to %v", what, draws, low, high, row.Wait.Min, row.Wait.Max)
				}
			}
		}
	}
}

// Long plans have fewer draws, but a band still.
func TestBandsOfALongPlan(t *testing.T) {
	rows := Plan(mustNew(t, "normal", Options{}), 3000, PlanOptions{})
	last := rows[2999]
	const atCap = 15 * time.Minute
	if last.Wait.Min > atCap*9/10 || last.Wait.Max < atCap*11/10 || last.Wait.Min < atCap/2 || last.Wait.Max > atCap*3/2 {
		t.Errorf("at the cap of %v: %+v", atCap, last.Wait)
	}
}
