package policy

import (
	"math"
	"slices"
	"time"
)

// tails keeps the least and the greatest of many values: enough to say what one
// in bandLeavesOut is below, and one above.
type tails struct{ least, greatest extremes }

func makeTails(n, values int) []tails {
	t := make([]tails, n)
	keep := values/bandLeavesOut + 1
	for i := range t {
		t[i] = tails{extremes{keep: keep}, extremes{keep: keep}}
	}
	return t
}

func (t *tails) add(v time.Duration) {
	t.least.add(v)
	t.greatest.add(math.MaxInt64 - v)
}

// edges are the values that leave out as many on either side.
func (t *tails) edges() (low, high time.Duration) {
	return t.least.last(), math.MaxInt64 - t.greatest.last()
}

// extremes keeps the least of many values.
type extremes struct {
	keep int
	kept []time.Duration // the first keep are sorted once they have been cut to
	cut  bool
}

func (e *extremes) add(v time.Duration) {
	if e.cut && v >= e.kept[e.keep-1] {
		return
	}
	if e.kept = append(e.kept, v); len(e.kept) >= 2*e.keep {
		e.trim()
	}
}

func (e *extremes) trim() {
	slices.Sort(e.kept)
	if len(e.kept) >= e.keep {
		e.kept, e.cut = e.kept[:e.keep], true
	}
}

// last is the greatest of those kept.
func (e *extremes) last() time.Duration {
	e.trim()
	return e.kept[len(e.kept)-1]
}
