package page

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// Limits of what is kept. The routes and upstreams used first are kept; the page shows how many
// are not.
const (
	maxRoutes    = 16
	maxUpstreams = 16
)

// A mark holds everything that a route had counted, taken every marksEvery steps. The oldest one
// is between a window and a window plus marksEvery steps old.
const (
	marksEvery = 6
	numMarks   = Points/marksEvery + 1
)

// history holds the results of the last steps. The index in a ring is the number of the step,
// modulo its length.
type history struct {
	looks     int // steps so far; step 0 is the beginning
	began     time.Time
	tickAt    [2]time.Time
	markAt    [numMarks]time.Time
	routes    []*routeHistory
	upstreams []*upstreamHistory
	more      int // routes in use that are not kept
}

// routeHistory is the history of one route, about 7 KiB.
type routeHistory struct {
	route  *metrics.Route
	ticks  [2]counts
	marks  [numMarks]counts
	points [Points]point
}

// counts holds what a route had counted at a moment, modulo 2^32. Differences over a few minutes
// are exact.
type counts struct {
	outcomes [policy.NumOutcomes]uint32
	retries  [policy.NumReasons]uint32
	requests buckets
	attempts buckets
}

// point is the change of a route's counts in a step.
type point struct {
	kinds      [numKinds]uint32
	retries    uint32
	p99        uint32 // of requests, microseconds
	attemptP99 uint32
}

type upstreamHistory struct {
	name   string
	seen   bool
	closed uint64 // how often its breaker had closed
	points [Points]upstreamPoint
}

// upstreamPoint is the state of an upstream at the end of a step. The breaker's state also covers
// one that lasted only a part of the step.
type upstreamPoint struct {
	breaker  breaker.State
	known    bool
	limit    uint32 // 0: none
	inFlight uint32
	waiting  uint32
	budget   float32
}

func (h *history) begin(now time.Time) {
	h.began = now
	for i := range h.tickAt {
		h.tickAt[i] = now
	}
	for i := range h.markAt {
		h.markAt[i] = now
	}
}

// look takes the next step.
func (h *history) look(now time.Time, m *metrics.Metrics, upstreams []metrics.Upstream) {
	h.looks++
	h.find(m)
	h.tickAt[h.looks%2] = now
	mark := h.looks%marksEvery == 0
	if mark {
		h.markAt[h.looks/marksEvery%numMarks] = now
	}
	for _, r := range h.routes {
		r.look(h.looks, mark)
	}
	h.lookAt(upstreams)
}

// find begins the history of routes that are used for the first time, and drops that of removed
// routes.
func (h *history) find(m *metrics.Metrics) {
	known := make(map[*metrics.Route]bool, len(h.routes))
	for _, r := range h.routes {
		known[r.route] = false
	}
	var found []*metrics.Route
	m.Each(func(r *metrics.Route) {
		if _, is := known[r]; is {
			known[r] = true
		} else if r.Used() {
			found = append(found, r)
		}
	})
	h.routes = slices.DeleteFunc(h.routes, func(r *routeHistory) bool { return !known[r.route] })
	h.more = max(0, len(h.routes)+len(found)-maxRoutes)
	slices.SortFunc(found, func(a, b *metrics.Route) int { return strings.Compare(a.Name(), b.Name()) })
	for _, r := range found[:len(found)-h.more] {
		h.routes = append(h.routes, &routeHistory{route: r})
	}
	slices.SortFunc(h.routes, func(a, b *routeHistory) int { return strings.Compare(a.route.Name(), b.route.Name()) })
}

// look records the step with the number n.
func (r *routeHistory) look(n int, mark bool) {
	live := r.route.Read()
	now := countsOf(&live)
	d := now.since(&r.ticks[(n-1)%2])
	p := &r.points[n%Points]
	*p = point{p99: d.requests.quantile(0.99), attemptP99: d.attempts.quantile(0.99)}
	p.kinds, p.retries = d.byKind(), d.retried()
	r.ticks[n%2] = now
	if mark {
		r.marks[n/marksEvery%numMarks] = now
	}
}

func (h *history) lookAt(upstreams []metrics.Upstream) {
	for _, u := range h.upstreams {
		u.seen = false
	}
	for i := range upstreams {
		if u := h.upstream(upstreams[i].Name); u != nil {
			u.look(h.looks, &upstreams[i])
		}
	}
	h.upstreams = slices.DeleteFunc(h.upstreams, func(u *upstreamHistory) bool { return !u.seen })
}

// upstream returns the history of that name, or nil if there is no room for one.
func (h *history) upstream(name string) *upstreamHistory {
	for _, u := range h.upstreams {
		if u.name == name {
			return u
		}
	}
	if len(h.upstreams) == maxUpstreams {
		return nil
	}
	u := &upstreamHistory{name: name}
	h.upstreams = append(h.upstreams, u)
	return u
}

// look records the step with the number n.
func (u *upstreamHistory) look(n int, now *metrics.Upstream) {
	g := &now.Guard
	closed := uint64(0)
	for _, times := range g.Opened {
		closed += times
	}
	p := upstreamPoint{
		breaker: g.Breaker, known: true, limit: uint32(min(max(int64(g.ConcurrencyLimit), 0), math.MaxUint32)), inFlight: uint32(max(g.InFlight, 0)), waiting: uint32(max(g.Queued, 0)),
		budget: float32(now.BudgetTokens),
	}
	if closed > u.closed {
		p.breaker = breaker.Open
	}
	u.points[n%Points], u.closed, u.seen = p, closed, true
}

func countsOf(now *metrics.Counts) (c counts) {
	narrow(c.outcomes[:], now.Outcomes[:])
	narrow(c.retries[:], now.Retries[:])
	narrow(c.requests[:], now.Requests[:])
	narrow(c.attempts[:], now.Attempts[:])
	return c
}

func narrow(to []uint32, from []uint64) {
	for i, n := range from {
		to[i] = uint32(n)
	}
}

// since returns what was counted after o.
func (c *counts) since(o *counts) counts {
	d := *c
	subtract(d.outcomes[:], o.outcomes[:])
	subtract(d.retries[:], o.retries[:])
	subtract(d.requests[:], o.requests[:])
	subtract(d.attempts[:], o.attempts[:])
	return d
}

func subtract(from, what []uint32) {
	for i, n := range what {
		from[i] -= n
	}
}

func (c *counts) byKind() (n [numKinds]uint32) {
	for o, times := range c.outcomes {
		n[kinds[o]] += times
	}
	return n
}

func (c *counts) retried() (n uint32) {
	for _, times := range c.retries {
		n += times
	}
	return n
}
