package metrics

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// NumBuckets is the number of buckets of a histogram of durations; see
// DurationEdges.
const NumBuckets = maxEdges + 1

// Counts holds the counts of a route since the start, for a page that shows it beside /metrics. One
// field may be a request ahead of another. They are modulo 2^32, to be small; differences over a few
// minutes are exact.
type Counts struct {
	Outcomes [policy.NumOutcomes]uint32
	Retries  [policy.NumReasons]uint32
	Requests [NumBuckets]uint32 // by duration, waits included
	Attempts [NumBuckets]uint32 // by duration
}

// DurationEdges returns the upper, inclusive edges of the buckets of Counts, one fewer than
// buckets. The slice belongs to the caller.
func DurationEdges() []time.Duration {
	edges := make([]time.Duration, len(durationLadder.edges))
	for i, edge := range durationLadder.edges {
		edges[i] = time.Duration(edge)
	}
	return edges
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

// Read returns the current counts. It does not allocate.
func (r *Route) Read() (out Counts) {
	for i := range r.stripes {
		s := r.stripes[i].Load()
		if s == nil {
			continue
		}
		addLoaded(out.Outcomes[:], s.outcomes[:])
		addLoaded(out.Retries[:], s.retries[:])
		for class := range codeClasses {
			if h := s.request[class].Load(); h != nil {
				addLoaded(out.Requests[:], h.buckets[:])
			}
			if h := s.attempt[class].Load(); h != nil {
				addLoaded(out.Attempts[:], h.buckets[:])
			}
		}
	}
	return out
}

// addLoaded adds the counts of from to those of to.
func addLoaded[N uint32 | uint64](to []N, from []atomic.Uint64) {
	for i := range from {
		to[i] += N(from[i].Load())
	}
}

// Since returns what was counted after o.
func (c Counts) Since(o *Counts) Counts {
	subtract(c.Outcomes[:], o.Outcomes[:])
	subtract(c.Retries[:], o.Retries[:])
	subtract(c.Requests[:], o.Requests[:])
	subtract(c.Attempts[:], o.Attempts[:])
	return c
}

func subtract(from, what []uint32) {
	for i, n := range what {
		from[i] -= n
	}
}
