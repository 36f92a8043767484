package policy

import (
	"math/rand/v2"
	"time"
)

// Row is what a strategy does at one retry.
type Row struct {
	Retry int   // from 1: the first retry is the second attempt
	Wait  Range // before this retry; see Plan for what its ends mean
	Total Range // from the begin of the first attempt to the begin of this retry
}

// PlanOptions set up a plan.
type PlanOptions struct {
	Attempt time.Duration // how long each attempt is taken to last
	Samples int           // draws per retry for the means; 0 = 10 000, and 50 000 at least for a strategy that is not Bounded
	Seed    uint64        // the same seed gives the same plan
}

const (
	defaultSamples = 10_000
	bandSamples    = 50_000
	bandLeavesOut  = 1000      // one wait in so many is shorter than Row has it, and one longer
	maxDraws       = 2_000_000 // of one plan, so that a long one stays quick
)

// Plan lists what b does at its first retries. If b is Bounded, shortest and
// longest waits come from the theory (see Ranger): those of one row are the
// extremes when all rows before it were extreme too. Otherwise there is no
// longest wait, and Min and Max of each Range are what one draw in a thousand is
// below and one above; in plans of more than a thousand retries they are the
// extremes of fewer draws. Means are sampled, because a wait may depend on the
// ones before it. Sums that overflow stay at Forever. A nil b does not wait.
func Plan(b Backoff, retries int, o PlanOptions) []Row {
	if b == nil {
		b = None{}
	}
	rows := make([]Row, max(retries, 0))
	for i := range rows {
		rows[i].Retry = i + 1
	}
	if Bounded(b) {
		setExtremes(b, rows, o)
		sampleMeans(b, rows, o, o.samples(len(rows), defaultSamples), func(int, time.Duration, time.Duration) {})
	} else {
		sampleBands(b, rows, o)
	}
	return rows
}

// samples is how many walks are drawn, unless least asks for more.
func (o PlanOptions) samples(rows, least int) int {
	n := o.Samples
	if n <= 0 || n < least && least > defaultSamples {
		n = least
	}
	return max(1, min(n, maxDraws/max(rows, 1)))
}

// setExtremes fills in the shortest and longest waits and totals.
func setExtremes(b Backoff, rows []Row, o PlanOptions) {
	shortest, longest := walk(b, o, minOf), walk(b, o, maxOf)
	for i := range rows {
		rows[i].Wait.Min, rows[i].Total.Min = shortest(i)
		rows[i].Wait.Max, rows[i].Total.Max = longest(i)
	}
}

func minOf(r Range) time.Duration { return r.Min }
func maxOf(r Range) time.Duration { return r.Max }

// walk gives a function that is called for 0, 1, 2, ... and returns the wait
// that pick takes from the range at that retry, and the total.
func walk(b Backoff, o PlanOptions, pick func(Range) time.Duration) func(i int) (wait, total time.Duration) {
	var s Step
	return func(i int) (time.Duration, time.Duration) {
		s.Retry = i
		s.Elapsed = addUp(s.Elapsed, o.Attempt)
		s.Previous = pick(rangeOf(b, s))
		s.Elapsed = addUp(s.Elapsed, s.Previous)
		return s.Previous, s.Elapsed
	}
}

// rangeOf is the range of b at s. A strategy that does not know its range is
// asked a thousand times instead.
func rangeOf(b Backoff, s Step) Range {
	if k, ok := b.(Ranger); ok {
		return k.Range(s)
	}
	r := rand.New(rand.NewPCG(uint64(s.Retry), 1))
	first := waitOf(b, s, r)
	all := Range{Min: first, Max: first}
	for range 1000 {
		w := waitOf(b, s, r)
		all.Min, all.Max = min(all.Min, w), max(all.Max, w)
	}
	return all
}

// sampleMeans fills in the means over many seeded walks, each step of which it
// also shows to each.
func sampleMeans(b Backoff, rows []Row, o PlanOptions, samples int, each func(i int, wait, total time.Duration)) {
	waits, totals := make([]float64, len(rows)), make([]float64, len(rows))
	o.draw(b, len(rows), samples, func(i int, wait, total time.Duration) {
		waits[i] += float64(wait)
		totals[i] += float64(total)
		each(i, wait, total)
	})
	for i := range rows {
		rows[i].Wait.Mean = clampDuration(waits[i]/float64(samples), Forever)
		rows[i].Total.Mean = clampDuration(totals[i]/float64(samples), Forever)
	}
}

// sampleBands fills in the means and what one draw in a thousand is outside of.
func sampleBands(b Backoff, rows []Row, o PlanOptions) {
	samples := o.samples(len(rows), bandSamples)
	waits, totals := makeTails(len(rows), samples), makeTails(len(rows), samples)
	sampleMeans(b, rows, o, samples, func(i int, wait, total time.Duration) {
		waits[i].add(wait)
		totals[i].add(total)
	})
	for i := range rows {
		rows[i].Wait.Min, rows[i].Wait.Max = waits[i].edges()
		rows[i].Total.Min, rows[i].Total.Max = totals[i].edges()
	}
}

// draw walks through so many retries so many times.
func (o PlanOptions) draw(b Backoff, retries, walks int, each func(i int, wait, total time.Duration)) {
	r := rand.New(rand.NewPCG(o.Seed, 0x706f6c696379))
	for range walks {
		next := walkRandom(b, o, r)
		for i := range retries {
			wait, total := next(i)
			each(i, wait, total)
		}
	}
}

// walkRandom is walk with drawn waits.
func walkRandom(b Backoff, o PlanOptions, r Rand) func(i int) (wait, total time.Duration) {
	var s Step
	return func(i int) (time.Duration, time.Duration) {
		s.Retry = i
		s.Elapsed = addUp(s.Elapsed, o.Attempt)
		s.Previous = waitOf(b, s, r)
		s.Elapsed = addUp(s.Elapsed, s.Previous)
		return s.Previous, s.Elapsed
	}
}
