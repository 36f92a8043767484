package metrics

import (
	"math/bits"
	_ "unsafe" // for go:linkname
)

// A counter that all cores add to costs each of them the cache line, some
// 100 ns when it has to come from another core. So a route has several copies
// of its counts, called stripes, and a core keeps to one of them.
//
// A goroutine may move to another core at any time, also between being told
// its core and counting. Then two cores add to the same stripe and still count
// right, as all counts are atomic; they are just slower.

// maxStripes bounds the memory of a route: a stripe takes about 2 KiB, and
// about 1 KiB more per method and hundred of codes seen.
const maxStripes = 16

// procPin keeps a goroutine on its core until procUnpin and gives the number of
// that core (of Go's scheduler: a P), from 0 to GOMAXPROCS-1. Go tells it to
// nobody but its own packages and those that ask by linkname, for which the
// runtime keeps both functions as they are (go.dev/issue/67401). A token in a
// sync.Pool, which has one per core, tells it too, for five times the instructions
// and only roughly: two cores may hold tokens of the same stripe.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// stripesFor is how many stripes a route gets on so many cores (>= 1): a power
// of two, at least one per core, at most maxStripes.
func stripesFor(cores int) int {
	return min(1<<bits.Len(uint(cores-1)), maxStripes)
}
