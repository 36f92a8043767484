package backoff

import (
	"math"
	"slices"
	"time"
)

// tails keeps the smallest and the largest of many values: enough to find the bounds that
// one in BandLeavesOut is below, and one above.
type tails struct{ least, greatest extremes }

// MakeTails returns n empty tails, each for the given number of values.
func MakeTails(n, values int) []tails {
	t := make([]tails, n)
	keep := values/BandLeavesOut + 1
	for i := range t {
		t[i] = tails{extremes{keep: keep}, extremes{keep: keep}}
	}
	return t
}

// Add adds a value.
func (t *tails) Add(v time.Duration) {
	t.least.add(v)
	t.greatest.add(math.MaxInt64 - v)
}

// Edges returns the bounds that leave out one value in BandLeavesOut on either side.
func (t *tails) Edges() (low, high time.Duration) {
	return t.least.last(), math.MaxInt64 - t.greatest.last()
}

// extremes keeps the smallest of many values.
type extremes struct {
	keep    int
	kept    []time.Duration // the first keep are sorted once cut is true
	trimmed bool
}

func (e *extremes) add(v time.Duration) {
	if e.trimmed && v >= e.kept[e.keep-1] {
		return
	}
	if e.kept = append(e.kept, v); len(e.kept) >= 2*e.keep {
		e.trim()
	}
}

func (e *extremes) trim() {
	slices.Sort(e.kept)
	if len(e.kept) >= e.keep {
		e.kept, e.trimmed = e.kept[:e.keep], true
	}
}

// last returns the largest of the values kept.
func (e *extremes) last() time.Duration {
	e.trim()
	return e.kept[len(e.kept)-1]
}

// BandLeavesOut is how rare the waits outside a plan's range are: one in so many is
// shorter, and one longer.
const BandLeavesOut = 1000
