package policy

import (
	"math/rand/v2"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Row is one retry in a plan.
type Row struct {
	Retry int           // from 1: the first retry is the second attempt
	Wait  backoff.Range // before this retry; see Plan for the meaning of Min and Max
	Total backoff.Range // from the start of the first attempt to the start of this retry
}

// PlanOptions configures Plan.
type PlanOptions struct {
	Attempt time.Duration // the assumed duration of each attempt
	Samples int           // draws per retry; 0 = 10 000, and at least 50 000 if the strategy is not Bounded; fewer if a plan would exceed maxDraws
	Seed    uint64        // the same seed yields the same plan
}

const (
	defaultSamples = 10_000
	bandSamples    = 50_000
	maxDraws       = 2_000_000 // per plan, so that a long plan stays fast
)

// Plan returns what b does at its first retries. If b is Bounded, the shortest and longest
// waits are exact (see backoff.Ranger): those of one row assume that all earlier rows were
// extreme too. Otherwise there is no longest wait. Then one draw in a thousand is below Min
// and one above Max of each Range; in plans of more than a thousand retries they are the
// extremes of fewer draws. Means are exact if no wait depends on earlier ones, and otherwise sampled.
// Sums that overflow stay at Forever. A nil b does not wait.
func Plan(b backoff.Strategy, retries int, o PlanOptions) []Row {
	if b == nil {
		b = backoff.None{}
	}
	rows := make([]Row, max(retries, 0))
	for i := range rows {
		rows[i].Retry = i + 1
	}
	if backoff.Bounded(b) {
		setExtremes(b, rows, o)
		if !setMeans(b, rows, o) {
			sampleMeans(b, rows, o, o.samples(len(rows), defaultSamples), func(int, time.Duration, time.Duration) {})
		}
	} else {
		sampleBands(b, rows, o)
	}
	return rows
}

// samples returns the number of walks to draw: o.Samples or least, within maxDraws.
func (o PlanOptions) samples(rows, least int) int {
	n := o.Samples
	if n <= 0 || n < least && least > defaultSamples {
		n = least
	}
	return max(1, min(n, maxDraws/max(rows, 1)))
}

// setExtremes fills in the shortest and longest waits and totals.
func setExtremes(b backoff.Strategy, rows []Row, o PlanOptions) {
	shortest, longest := walk(b, o, minOf), walk(b, o, maxOf)
	for i := range rows {
		rows[i].Wait.Min, rows[i].Total.Min = shortest(i)
		rows[i].Wait.Max, rows[i].Total.Max = longest(i)
	}
}

// setMeans sets the means from the formulas of b. It reports false if a wait depends on what was before
// it, so that there is no formula.
func setMeans(b backoff.Strategy, rows []Row, o PlanOptions) bool {
	l, ok := b.(backoff.Ranger)
	if !ok {
		return false
	}
	total := time.Duration(0)
	for i := range rows {
		r := l.Range(backoff.Step{Retry: i})
		if r != l.Range(backoff.Step{Retry: i, Previous: rows[i].Wait.Max, Elapsed: rows[i].Total.Max}) {
			return false
		}
		total = backoff.AddUp(total, backoff.AddUp(o.Attempt, r.Mean))
		rows[i].Wait.Mean, rows[i].Total.Mean = r.Mean, total
	}
	return true
}

func minOf(r backoff.Range) time.Duration { return r.Min }
func maxOf(r backoff.Range) time.Duration { return r.Max }

// walk returns a function to be called with 0, 1, 2, ... It returns the wait that pick
// takes from the range at that retry, and the total so far.
func walk(b backoff.Strategy, o PlanOptions, pick func(backoff.Range) time.Duration) func(i int) (wait, total time.Duration) {
	var s backoff.Step
	return func(i int) (time.Duration, time.Duration) {
		s.Retry = i
		s.Elapsed = backoff.AddUp(s.Elapsed, o.Attempt)
		s.Previous = pick(rangeOf(b, s))
		s.Elapsed = backoff.AddUp(s.Elapsed, s.Previous)
		return s.Previous, s.Elapsed
	}
}

// rangeOf returns the range of b at s. If b is no Ranger, it samples 1001 waits.
func rangeOf(b backoff.Strategy, s backoff.Step) backoff.Range {
	if k, ok := b.(backoff.Ranger); ok {
		return k.Range(s)
	}
	r := rand.New(rand.NewPCG(uint64(s.Retry), 1))
	first := backoff.WaitOf(b, s, r)
	all := backoff.Range{Min: first, Max: first}
	for range 1000 {
		w := backoff.WaitOf(b, s, r)
		all.Min, all.Max = min(all.Min, w), max(all.Max, w)
	}
	return all
}

// sampleMeans sets the means over many seeded walks, and calls each for every step.
func sampleMeans(b backoff.Strategy, rows []Row, o PlanOptions, samples int, each func(i int, wait, total time.Duration)) {
	waits, totals := make([]float64, len(rows)), make([]float64, len(rows))
	o.draw(b, len(rows), samples, func(i int, wait, total time.Duration) {
		waits[i] += float64(wait)
		totals[i] += float64(total)
		each(i, wait, total)
	})
	for i := range rows {
		rows[i].Wait.Mean = backoff.ClampDuration(waits[i]/float64(samples), backoff.Forever)
		rows[i].Total.Mean = backoff.ClampDuration(totals[i]/float64(samples), backoff.Forever)
	}
}

// sampleBands sets the means, and the bounds that one draw in a thousand exceeds.
func sampleBands(b backoff.Strategy, rows []Row, o PlanOptions) {
	samples := o.samples(len(rows), bandSamples)
	waits, totals := backoff.MakeTails(len(rows), samples), backoff.MakeTails(len(rows), samples)
	sampleMeans(b, rows, o, samples, func(i int, wait, total time.Duration) {
		waits[i].Add(wait)
		totals[i].Add(total)
	})
	for i := range rows {
		rows[i].Wait.Min, rows[i].Wait.Max = waits[i].Edges()
		rows[i].Total.Min, rows[i].Total.Max = totals[i].Edges()
	}
}

// draw makes walks random walks of retries steps each, and calls each for every step.
func (o PlanOptions) draw(b backoff.Strategy, retries, walks int, each func(i int, wait, total time.Duration)) {
	r := rand.New(rand.NewPCG(o.Seed, 0x706f6c696379))
	for range walks {
		next := walkRandom(b, o, r)
		for i := range retries {
			wait, total := next(i)
			each(i, wait, total)
		}
	}
}

// walkRandom is like walk, but draws its waits from r.
func walkRandom(b backoff.Strategy, o PlanOptions, r backoff.Rand) func(i int) (wait, total time.Duration) {
	var s backoff.Step
	return func(i int) (time.Duration, time.Duration) {
		s.Retry = i
		s.Elapsed = backoff.AddUp(s.Elapsed, o.Attempt)
		s.Previous = backoff.WaitOf(b, s, r)
		s.Elapsed = backoff.AddUp(s.Elapsed, s.Previous)
		return s.Previous, s.Elapsed
	}
}
