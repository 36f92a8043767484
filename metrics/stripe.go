package metrics

import "math/bits"

// A counter that all cores add to costs each of them the cache line, some
// 100 ns when it has to come from another core. So a route has several copies
// of its counts, called stripes, and a core keeps to one of them.
//
// Go does not tell which core a goroutine runs on, but sync.Pool keeps its
// items per core: a stripe that was put back is what the same core gets next.
// Two cores that have the same stripe still count right, as all counts are
// atomic; they are just slower. The collector empties pools, but a stripe
// belongs to its route, and is handed out again.

// maxStripes bounds the memory of a route: a stripe takes about 2 KiB, and
// about 1 KiB more per method and hundred of codes seen.
const maxStripes = 16

// stripesFor is how many stripes a route gets on so many cores (>= 1): a power
// of two, at least one per core, at most maxStripes.
func stripesFor(cores int) int {
	return min(1<<bits.Len(uint(cores-1)), maxStripes)
}
