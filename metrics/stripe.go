package metrics

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// A counter that all cores add to costs each of them the cache line, some
// 100 ns when it has to come from another core. So a route has several copies
// of its counts, called stripes, and a core keeps to one of them.
//
// Go does not tell which core a goroutine runs on, but sync.Pool keeps its
// items per core: a token that was put back is what the same core gets next.
// A token only suggests a stripe. Two cores that hold tokens of the same
// stripe still count right, as all counts are atomic; they are just slower.

// maxStripes bounds the memory of a route: a stripe takes about 2 KiB, and
// about 1 KiB more per method and hundred of codes seen.
const maxStripes = 16

// token suggests a stripe. Padded to a cache line.
type token struct {
	stripe uint
	_      [56]byte
}

// tokens are handed out again and again, never allocated: the collector
// empties pools, and what it drops costs nothing.
var tokens = func() (all [maxStripes]token) {
	for i := range all {
		all[i].stripe = uint(i)
	}
	return all
}()

var (
	nextToken atomic.Uint32
	tokenPool = sync.Pool{New: func() any { return &tokens[nextToken.Add(1)%maxStripes] }}
)

// stripesFor is how many stripes a route gets on so many cores (>= 1): a power
// of two, at least one per core, at most maxStripes.
func stripesFor(cores int) int {
	return min(1<<bits.Len(uint(cores-1)), maxStripes)
}
