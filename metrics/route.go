package metrics

import (
	"sync"
	"sync/atomic"
)

// Route holds the counts of the requests of one route. Each request is counted in the
// [Stripe] that Near returned when it began.
type Route struct {
	name string
	// The length of stripes is a power of two. Each is allocated at first use.
	stripes   []atomic.Pointer[Stripe]
	exemplars atomic.Pointer[exemplars] // nil until the first
	near      sync.Pool                 // of stripes: a core gets the one it used last
	next      atomic.Uint32
}

func newRoute(name string, stripes int) *Route {
	r := &Route{name: name, stripes: make([]atomic.Pointer[Stripe], stripes)}
	r.near.New = func() any { return r.stripe(uint(r.next.Add(1))) }
	return r
}

// Near returns this core's stripe, to be used for a request from its beginning to its end.
// It does not block, and allocates only at first use.
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
	slot.CompareAndSwap(nil, &Stripe{exemplars: &r.exemplars})
	return slot.Load()
}

// totals holds the sums over all stripes.
type totals struct {
	Stripe
	inFlight, waiting uint64
}

// totals sums the stripes; nil if the route was never used.
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

// inFlight returns what began less what ended. It reads what ended first, so that never
// more has ended than begun. Requests that begin and end during the read, within a
// microsecond, may count as in flight.
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
