package metrics

import (
	"sync"
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
	near    sync.Pool // of stripes: a core gets what it had last
	next    atomic.Uint32
}

// counts are all that is counted of a route, or of one stripe of it.
type counts struct {
	began atomic.Uint64 // requests
	waits atomic.Uint64 // begun

	fallbackFailures atomic.Uint64
	hedges           atomic.Uint64
	hedgesWon        atomic.Uint64

	faults   [policy.NumFaultKinds]atomic.Uint64
	outcomes [policy.NumOutcomes]atomic.Uint64
	retries  [policy.NumReasons]atomic.Uint64
	would    [policy.NumReasons]atomic.Uint64 // retries, in a route that observes
	perReq   attemptCounts
	request  histogram // durationLadder
	attempt  histogram // durationLadder
	added    histogram // durationLadder
	backoff  histogram // backoffLadder
	hold     histogram // backoffLadder
	byMethod [numMethods]codeTable
	byClass  [policy.NumClasses]codeTable
}

func newRoute(name string, stripes int) *Route {
	r := &Route{name: name, stripes: make([]atomic.Pointer[counts], stripes)}
	r.near.New = func() any { return r.stripe(uint(r.next.Add(1))) }
	return r
}

// counts gives this core's stripe.
func (r *Route) counts() *counts {
	c := r.near.Get().(*counts)
	r.near.Put(c)
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

// WouldRetry counts a retry that would have been made, by what it would be for.
func (r *Route) WouldRetry(reason policy.Reason) {
	if reason.ForRetry() {
		r.counts().would[reason].Add(1)
	}
}

// WaitBegan counts a request as waiting until WaitEnded.
func (r *Route) WaitBegan() { r.counts().waits.Add(1) }

// WaitEnded ends the wait begun last; waited is how long it really was.
func (r *Route) WaitEnded(waited time.Duration) {
	r.counts().backoff.observe(backoffLadder, waited)
}

// Held counts a wait at the upstream's door.
func (r *Route) Held(waited time.Duration) {
	r.counts().hold.observe(backoffLadder, waited)
}

// FallbackFailed counts a fallback upstream that had no better answer.
func (r *Route) FallbackFailed() { r.counts().fallbackFailures.Add(1) }

// FaultInjected counts a fault made up for an attempt.
func (r *Route) FaultInjected(kind policy.FaultKind) {
	if int(kind) < policy.NumFaultKinds {
		r.counts().faults[kind].Add(1)
	}
}

// Hedged counts a hedge that was sent, HedgeWon one whose answer was relayed.
func (r *Route) Hedged() { r.counts().hedges.Add(1) }

// HedgeWon is told after Hedged.
func (r *Route) HedgeWon() { r.counts().hedgesWon.Add(1) }

// RequestDone counts a request with all that became of it. Once per
// RequestBegan. method is read, not kept; code is what the caller got, 0 when
// nothing; d is the whole time; added, which counts only when there was more
// than one attempt and one failed (else it is 0), the time from the first attempt's end to the last one's.
func (r *Route) RequestDone(method []byte, code int, o policy.Outcome, d, added time.Duration, attempts int) {
	if int(o) >= policy.NumOutcomes {
		return
	}
	c := r.counts()
	c.byMethod[methodIndex(method)].inc(code)
	c.request.observe(durationLadder, d)
	c.perReq.observe(attempts)
	if attempts > 1 && added > 0 {
		c.added.observe(durationLadder, added)
	}
	c.outcomes[o].Add(1)
}

// totals are the counts of all stripes together.
type totals struct {
	counts
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
		t.inFlight = r.underWay((*counts).done, func(c *counts) uint64 { return c.began.Load() })
		t.waiting = r.underWay(func(c *counts) uint64 { return c.backoff.count() }, func(c *counts) uint64 { return c.waits.Load() })
	}
	return t
}

// underWay is what began less what ended. What ended is read first, so that
// nothing is ever found to have ended more often than it began; what begins
// and ends while this reads, within a microsecond, may count as under way.
func (r *Route) underWay(ended, began func(*counts) uint64) uint64 {
	sum := func(of func(*counts) uint64) (n uint64) {
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

// add adds all of o but what began.
func (c *counts) add(o *counts) {
	addAll(c.outcomes[:], o.outcomes[:])
	addAll(c.retries[:], o.retries[:])
	addAll(c.would[:], o.would[:])
	addAll(c.faults[:], o.faults[:])
	c.fallbackFailures.Add(o.fallbackFailures.Load())
	c.hedges.Add(o.hedges.Load())
	c.hedgesWon.Add(o.hedgesWon.Load())
	c.perReq.add(&o.perReq)
	c.request.add(&o.request)
	c.attempt.add(&o.attempt)
	c.added.add(&o.added)
	c.backoff.add(&o.backoff)
	c.hold.add(&o.hold)
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

// done is how many requests are done.
func (c *counts) done() (n uint64) {
	for i := range c.outcomes {
		n += c.outcomes[i].Load()
	}
	return n
}
