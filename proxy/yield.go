package proxy

import "runtime"

// yielding lets others go first before a caller's connection is looked at for
// its next request. When the processors are busy, the request is there by
// then, and is taken by the one call that reads it, without a look that finds nothing and
// a wait: some 4 % of a small GET's CPU time. When they are not, to go last among
// none is worth nothing, and wakes an idle processor, 25 to 45 % more for one connection on
// two of them (docs/performance.md). Nobody tells which of the two it is. So it is done only while
// many requests are under way, and each connection finds out whether it helps: what was in
// vain is tried again later, up to after 2^mostSkipped requests.
type yielding struct {
	skip  uint8 // requests before the next try
	vain  uint8 // tries in a row that were in vain
	tried bool  // the look to come is after a try
}

const (
	// mostSkipped requests, as a power of two, lie between two tries in vain.
	mostSkipped = 6
	// fewFirst spares connections of a few requests the first try.
	fewFirst = 8
	// manyActive is how many requests per processor have to be under way.
	manyActive = 8
)

func newYielding() yielding { return yielding{skip: fewFirst} }

// due says whether to yield before this look.
func (y *yielding) due() bool {
	if y.skip > 0 {
		y.skip--
		return false
	}
	y.tried = true
	return true
}

// looked tells whether there was something at the look.
func (y *yielding) looked(there bool) {
	switch {
	case !y.tried:
		return
	case there:
		y.vain = 0
	default:
		y.vain = min(y.vain+1, mostSkipped)
		y.skip = 1 << y.vain
	}
	y.tried = false
}

// yield lets others go first, where that has a chance to help.
func (c *conn) yield() {
	if c.manyUnderWay() && c.yielding.due() {
		runtime.Gosched()
	}
}

// manyUnderWay says whether so many requests are under way that the processors are busy.
func (c *conn) manyUnderWay() bool { return c.server.active.Load() >= c.server.many }
