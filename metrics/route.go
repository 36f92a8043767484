package metrics

import (
	"sync"
	"sync/atomic"
)

// Route holds what is counted of the requests of one route, each of which is
// counted by the [Stripe] that was near when it began.
type Route struct {
	name string
	// stripes has a power of two of permits, each filled when first used.
	stripes []atomic.Pointer[Stripe]
	near    sync.Pool // of stripes: a core gets what it had last
	next    atomic.Uint32
}

func newRoute(name string, stripes int) *Route {
	r := &Route{name: name, stripes: make([]atomic.Pointer[Stripe], stripes)}
	r.near.New = func() any { return r.stripe(uint(r.next.Add(1))) }
	return r
}

// Near gives this core's stripe, for all that is to be told of a request that
// begins. It does not block, and allocates only what is used for the first time.
func (r *Route) Near() *Stripe {
	s := r.near.Get().(*Stripe)
	r.near.Put(s)
	return s
}

func (r *Route) stripe(i uint) *Stripe {
	slot := &r.stripes[i&uint(len(r.stripes)-1)]
	if c := slot.Load(); c != nil {
		return c
	}
	slot.CompareAndSwap(nil, new(Stripe))
	return slot.Load()
}

// totals are the counts of all stripes together.
type totals struct {
	Stripe
	inFlight, waiting uint64
}

// totals sums the stripes; nil when the route was never used.
func (r *Route) totals() *totals {
	var t *totals
	for i := range r.stripes {
		if c := r.stripes[i].Load(); c != nil {
			if t == nil {
				t = new(totals)
			}
			t.add(c)
		}
	}
	if t != nil {
		t.inFlight = r.inFlight((*Stripe).done, func(c *Stripe) uint64 { return c.began.Load() })
		t.waiting = r.inFlight(func(c *Stripe) uint64 { return c.backoff.count() }, func(c *Stripe) uint64 { return c.waits.Load() })
	}
	return t
}

// inFlight is what began less what ended. What ended is read first, so that
// nothing is ever found to have ended more often than it began; what begins
// and ends while this reads, within a microsecond, may count as in flight.
func (r *Route) inFlight(ended, began func(*Stripe) uint64) uint64 {
	sum := func(of func(*Stripe) uint64) (n uint64) {
		for i := range r.stripes {
			if c := r.stripes[i].Load(); c != nil {
				n += of(c)
			}
		}
		return n
	}
	n := sum(ended)
	return sum(began) - n
}
