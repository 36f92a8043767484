package metrics

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Route counts what becomes of the requests of one route. It satisfies the
// observer interface of package proxy. All methods are safe for concurrent use
// and neither block nor allocate, but for the first use of a stripe or of a
// hundred of codes. A method given a value outside its closed set (none of our
// code does that) counts nothing.
type Route struct {
	name string
	// stripes has a power of two of places, each filled when first used.
	stripes []atomic.Pointer[counts]
}

// counts are all that is counted of a route, or of one stripe of it.
type counts struct {
	began atomic.Uint64 // requests
	waits atomic.Uint64 // begun

	outcomes [policy.NumOutcomes]atomic.Uint64
	retries  [policy.NumReasons]atomic.Uint64
	perReq   attemptCounts
	request  histogram // durationLadder
	attempt  histogram // durationLadder
	added    histogram // durationLadder
	backoff  histogram // backoffLadder
	byMethod [numMethods]codeTable
	byClass  [policy.NumClasses]codeTable
}

func newRoute(name string, stripes int) *Route {
	return &Route{name: name, stripes: make([]atomic.Pointer[counts], stripes)}
}

// counts gives this core's stripe.
func (r *Route) counts() *counts {
	t := tokenPool.Get().(*token)
	c := r.stripe(t.stripe)
	tokenPool.Put(t)
	return c
}

func (r *Route) stripe(i uint) *counts {
	place := &r.stripes[i&uint(len(r.stripes)-1)]
	if c := place.Load(); c != nil {
		return c
	}
	place.CompareAndSwap(nil, new(counts))
	return place.Load()
}

// RequestBegan counts a request as in flight until RequestDone.
func (r *Route) RequestBegan() { r.counts().began.Add(1) }

// AttemptDone counts an attempt that took d. A code outside 100..599, such as 0
// for an attempt that brought no response head, is labelled other.
func (r *Route) AttemptDone(class policy.Class, code int, d time.Duration) {
	if int(class) >= policy.NumClasses {
		return
	}
	c := r.counts()
	c.byClass[class].inc(code)
	c.attempt.observe(durationLadder, d)
}

// Retry counts a retry by what it is for.
func (r *Route) Retry(reason policy.Reason) {
	if reason.ForRetry() {
		r.counts().retries[reason].Add(1)
	}
}

// WaitBegan counts a request as waiting until WaitEnded.
func (r *Route) WaitBegan() { r.counts().waits.Add(1) }

// WaitEnded ends the wait begun last; waited is how long it really was.
func (r *Route) WaitEnded(waited time.Duration) {
	r.counts().backoff.observe(backoffLadder, waited)
}

// RequestDone counts a request with all that became of it. Once per
// RequestBegan. method is read, not kept; code is what the caller got, 0 when
// nothing; d is the whole time; added, which counts only when there was more
// than one attempt, the time from the first attempt's end to the last one's.
func (r *Route) RequestDone(method []byte, code int, o policy.Outcome, d, added time.Duration, attempts int) {
	if int(o) >= policy.NumOutcomes {
		return
	}
	c := r.counts()
	c.byMethod[methodIndex(method)].inc(code)
	c.request.observe(durationLadder, d)
	c.perReq.observe(attempts)
	if attempts > 1 {
		c.added.observe(durationLadder, added)
	}
	c.outcomes[o].Add(1)
}

// totals sums the stripes; nil when the route was never used. What ends
// something is read before what began it, so that nothing is ever found to
// have ended more often than it began.
func (r *Route) totals() *counts {
	var sum *counts
	for i := range r.stripes {
		if c := r.stripes[i].Load(); c != nil {
			if sum == nil {
				sum = new(counts)
			}
			sum.addEnds(c)
		}
	}
	for i := range r.stripes {
		if c := r.stripes[i].Load(); c != nil && sum != nil {
			sum.began.Add(c.began.Load())
			sum.waits.Add(c.waits.Load())
		}
	}
	return sum
}

// addEnds adds all of o but what began.
func (c *counts) addEnds(o *counts) {
	addAll(c.outcomes[:], o.outcomes[:])
	addAll(c.retries[:], o.retries[:])
	c.perReq.add(&o.perReq)
	c.request.add(&o.request)
	c.attempt.add(&o.attempt)
	c.added.add(&o.added)
	c.backoff.add(&o.backoff)
	for i := range c.byMethod {
		c.byMethod[i].add(&o.byMethod[i])
	}
	for i := range c.byClass {
		c.byClass[i].add(&o.byClass[i])
	}
}

func addAll(to, from []atomic.Uint64) {
	for i := range to {
		to[i].Add(from[i].Load())
	}
}

// inFlight is requests begun less requests done.
func (c *counts) inFlight() uint64 {
	n := c.began.Load()
	for i := range c.outcomes {
		n -= c.outcomes[i].Load()
	}
	return n
}

// waiting is waits begun less waits ended.
func (c *counts) waiting() uint64 { return c.waits.Load() - c.backoff.count() }
