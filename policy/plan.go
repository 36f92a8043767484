package policy

import (
	"math/rand/v2"
	"time"
)

// Row is what a strategy does at one retry.
type Row struct {
	Retry int   // from 1: the first retry is the second attempt
	Wait  Range // before this retry
	Total Range // from the begin of the first attempt to the begin of this retry
}

// PlanOptions set up a plan.
type PlanOptions struct {
	Attempt time.Duration // how long each attempt is taken to last
	Samples int           // draws per retry for the means; 0 = 10 000
	Seed    uint64        // the same seed gives the same plan
}

const (
	defaultSamples = 10_000
	maxDraws       = 2_000_000 // of one plan, so that a long one stays quick
)

// Plan lists what b does at its first retries. Shortest and longest waits come
// from the theory (see Ranger): those of one row are the extremes when all
// rows before it were extreme too. Means are sampled, because a wait may depend
// on the ones before it. Sums that overflow stay at Forever. A nil b does not
// wait.
func Plan(b Backoff, retries int, o PlanOptions) []Row {
	if b == nil {
		b = None{}
	}
	rows := make([]Row, max(retries, 0))
	shortest, longest := walk(b, o, minOf), walk(b, o, maxOf)
	for i := range rows {
		row := &rows[i]
		row.Retry = i + 1
		row.Wait.Min, row.Total.Min = shortest(i)
		row.Wait.Max, row.Total.Max = longest(i)
	}
	sampleMeans(b, rows, o)
	return rows
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

// sampleMeans fills in the means over many seeded walks.
func sampleMeans(b Backoff, rows []Row, o PlanOptions) {
	if len(rows) == 0 {
		return
	}
	samples := o.Samples
	if samples <= 0 {
		samples = defaultSamples
	}
	samples = max(1, min(samples, maxDraws/len(rows)))
	waits, totals := make([]float64, len(rows)), make([]float64, len(rows))
	r := rand.New(rand.NewPCG(o.Seed, 0x706f6c696379))
	for range samples {
		next := walkRandom(b, o, r)
		for i := range rows {
			w, t := next(i)
			waits[i] += float64(w)
			totals[i] += float64(t)
		}
	}
	for i := range rows {
		rows[i].Wait.Mean = clampDuration(waits[i]/float64(samples), Forever)
		rows[i].Total.Mean = clampDuration(totals[i]/float64(samples), Forever)
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
