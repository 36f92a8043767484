package page

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// Limits of what is kept. The routes and upstreams used first are kept; the page shows how many
// are not.
const (
	maxRoutes    = 16
	maxUpstreams = 16
)

// ring is the number of steps that are kept: the ends of all points, and the beginning of the first.
const ring = Points + 1

// history holds the results of the last steps. The index in a ring is the number of the step,
// modulo its length.
type history struct {
	looks     int // steps so far; step 0 is the beginning
	at        [ring]time.Time
	routes    []*routeHistory
	upstreams []*upstreamHistory
	more      int // routes in use that are not kept
}

// routeHistory is what one route had counted at the last steps, about 28 KiB.
type routeHistory struct {
	route *metrics.Route
	steps [ring]metrics.Counts
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
	for i := range h.at {
		h.at[i] = now
	}
}

// step returns the index of the step that was so many steps before the last one.
func (h *history) step(before int) int { return (h.looks + ring - before) % ring }

// look takes the next step, and reports whether it is like the one before, without a request in flight.
func (h *history) look(now time.Time, m *metrics.Metrics, upstreams []metrics.Upstream) (quiet bool) {
	h.looks++
	h.find(m)
	h.at[h.step(0)] = now
	quiet = true
	for _, r := range h.routes {
		r.steps[h.step(0)] = r.route.Read()
		quiet = quiet && r.route.InFlight() == 0 && r.steps[h.step(0)] == r.steps[h.step(1)]
	}
	h.lookAt(upstreams)
	for _, u := range h.upstreams {
		quiet = quiet && u.points[h.looks%Points] == u.points[(h.looks+Points-1)%Points]
	}
	return quiet
}

// pass takes the steps that were due since the last one, which was quiet, and before now. They are like it.
func (h *history) pass(now time.Time) {
	last := h.at[h.step(0)]
	due := int(now.Sub(last) / Step)
	for i := max(1, due-ring+1); i <= due; i++ {
		h.looks++
		h.at[h.step(0)] = last.Add(time.Duration(i) * Step)
		for _, r := range h.routes {
			r.steps[h.step(0)] = r.steps[h.step(1)]
		}
		for _, u := range h.upstreams {
			u.points[h.looks%Points] = u.points[(h.looks+Points-1)%Points]
		}
	}
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
