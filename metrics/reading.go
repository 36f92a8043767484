package metrics

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// NumBuckets is the number of buckets of a histogram of durations; see
// DurationEdges.
const NumBuckets = maxEdges + 1

// Counts holds the counts of a route since the start, for a page that shows it beside
// /metrics. They never decrease. One field may be a request ahead of another.
type Counts struct {
	Outcomes          [policy.NumOutcomes]uint64
	Retries           [policy.NumReasons]uint64
	Requests          [NumBuckets]uint64 // by duration, waits included
	Attempts          [NumBuckets]uint64 // by duration
	InFlight, Waiting uint64
}

// DurationEdges returns the upper, inclusive edges of the buckets of Counts, one fewer than
// buckets. The slice belongs to the caller.
func DurationEdges() []time.Duration {
	return append([]time.Duration(nil), durationLadder.edges[:durationLadder.n]...)
}

// Each calls f for every route, in random order. f must not call m.
func (m *Metrics) Each(f func(*Route)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.routes {
		f(r)
	}
}

// Name returns the route's name.
func (r *Route) Name() string { return r.name }

// Used reports whether anything was counted yet.
func (r *Route) Used() bool {
	for i := range r.stripes {
		if r.stripes[i].Load() != nil {
			return true
		}
	}
	return false
}

// Read returns the current counts. It does not allocate.
func (r *Route) Read() (out Counts) {
	for i := range r.stripes {
		c := r.stripes[i].Load()
		if c == nil {
			continue
		}
		addLoaded(out.Outcomes[:], c.outcomes[:])
		addLoaded(out.Retries[:], c.retries[:])
		c.request.addTo(out.Requests[:])
		c.attempt.addTo(out.Attempts[:])
	}
	out.InFlight = r.inFlight((*Stripe).done, func(c *Stripe) uint64 { return c.began.Load() })
	out.Waiting = r.inFlight(func(c *Stripe) uint64 { return c.backoff.count() }, func(c *Stripe) uint64 { return c.waits.Load() })
	return out
}

func addLoaded(to []uint64, from []atomic.Uint64) {
	for i := range to {
		to[i] += from[i].Load()
	}
}
