package page

import (
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// State is everything shown except the requests.
type State struct {
	AtMS       int64      `json:"at_ms"` // since 1970
	Version    string     `json:"version"`
	Host       string     `json:"host"` // name of the machine or Pod; "" if unknown
	UptimeMS   int64      `json:"uptime_ms"`
	Process    Process    `json:"process"`
	Queued     Queue      `json:"queued"` // for circuit breakers, concurrency limits, rate limits and rate-limit pauses together
	Routes     []Route    `json:"routes"`
	MoreRoutes int        `json:"more_routes"` // in use and not shown
	Unused     []Unused   `json:"unused"`      // routes without a request since the start
	Upstreams  []Upstream `json:"upstreams"`
}

// Route is the state of one route: now, and over the last minutes.
type Route struct {
	Name     string       `json:"name"`
	Rule     Rule         `json:"rule"`
	InFlight uint64       `json:"in_flight"`
	Waiting  uint64       `json:"waiting"` // of these, those that wait for their next attempt
	Now      Span         `json:"now"`     // the last 5 to 10 seconds
	Last     Span         `json:"last"`    // the last 5 minutes, or since the start
	Outcomes []Count      `json:"outcomes"`
	Retried  []Count      `json:"retried"` // retries by reason
	History  RouteHistory `json:"history"`
}

// Unused is a route that no request has taken yet. Its match may be wrong.
type Unused struct {
	Name  string `json:"name"`
	Match string `json:"match"` // such as path /read; "" for the route default
}

// Span is what happened in a stretch of time. The times p50 and p99 are in microseconds, 0 if
// nothing was measured. Each is the upper edge of a bucket of the metrics: the quantile is at most that.
type Span struct {
	Seconds       float64 `json:"seconds"`
	Requests      uint32  `json:"requests"`
	FirstAttempt  uint32  `json:"first_attempt"`
	Recovered     uint32  `json:"recovered"`
	Failed        uint32  `json:"failed"`
	ClientEnd     uint32  `json:"client_end"` // the client left, or its request was refused
	Retries       uint32  `json:"retries"`
	P50           uint32  `json:"p50"` // of requests, all attempts and waits included
	P99           uint32  `json:"p99"`
	AttemptP50    uint32  `json:"attempt_p50"` // of single attempts, without the waits between them
	AttemptP99    uint32  `json:"attempt_p99"`
	Timed         uint32  `json:"timed"` // requests that P50 and P99 are computed from
	TimedAttempts uint32  `json:"timed_attempts"`
}

// Count is how often something named occurred in the last minutes.
type Count struct {
	Name  string `json:"name"`
	Words string `json:"words"` // the name for people
	Why   string `json:"why"`   // in a sentence
	Kind  string `json:"kind,omitempty"`
	Count uint32 `json:"count"`
}

// RouteHistory holds the points of the last minutes, the latest last.
type RouteHistory struct {
	FirstAttempt []uint32 `json:"first_attempt"`
	Recovered    []uint32 `json:"recovered"`
	Failed       []uint32 `json:"failed"`
	P99          []uint32 `json:"p99"`
	AttemptP99   []uint32 `json:"attempt_p99"`
}

// Upstream is the state of one upstream.
type Upstream struct {
	Name        string          `json:"name"`
	Breaker     string          `json:"breaker"`
	BreakerWhy  string          `json:"breaker_why"`         // the meaning of the state
	OpenedBy    string          `json:"opened_by,omitempty"` // why the breaker is not closed
	Limit       int             `json:"concurrency_limit"`   // 0: no limit applies
	InFlight    int             `json:"in_flight"`
	Abandoned   int             `json:"abandoned"` // of these, those that no client waits for
	Waiting     int             `json:"waiting"`
	LongestMS   int64           `json:"longest_wait_ms"` // longest wait so far of those waiting
	HasBudget   bool            `json:"has_budget"`
	Budget      float64         `json:"budget"` // retries left
	Active      int             `json:"active"` // connections
	Idle        int             `json:"idle"`
	LastFailure *Failure        `json:"last_failure,omitempty"` // a failed connection; only one of the last five minutes
	History     UpstreamHistory `json:"history"`
}

// Failure is a failed connection.
type Failure struct {
	AtMS    int64  `json:"at_ms"` // since 1970
	Address string `json:"address"`
	Kind    string `json:"kind"`
	Error   string `json:"error"` // one line, bounded; parts may come from the upstream
}

// UpstreamHistory holds the points of the last minutes, the latest last.
type UpstreamHistory struct {
	Breaker  []string  `json:"breaker"`
	Limit    []uint32  `json:"concurrency_limit"`
	InFlight []uint32  `json:"in_flight"`
	Waiting  []uint32  `json:"waiting"`
	Budget   []float32 `json:"budget"`
}

// State returns the current state.
func (p *Page) State(now time.Time) State {
	upstreams, process := p.options.Upstreams(), p.options.Process()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catchUp(now)
	h := &p.history
	s := State{
		AtMS: now.UnixMilli(), Version: p.options.Version, Host: p.options.Host, UptimeMS: now.Sub(p.started).Milliseconds(),
		Process: process, Queued: queued(upstreams, process), MoreRoutes: h.more, Routes: []Route{}, Upstreams: []Upstream{},
	}
	h.find(p.options.Metrics)
	s.Unused = p.unused()
	for _, r := range h.routes {
		route := h.route(r, now)
		route.Rule = p.options.Route(route.Name)
		s.Routes = append(s.Routes, route)
	}
	for i := range upstreams {
		if i < maxUpstreams {
			s.Upstreams = append(s.Upstreams, h.upstreamState(&upstreams[i], now))
		}
	}
	return s
}

// maxUnused limits the routes without requests that are shown.
const maxUnused = 50

// unused returns the routes without a request since the start, in order of their names.
func (p *Page) unused() []Unused {
	list := []Unused{}
	p.options.Metrics.Each(func(r *metrics.Route) {
		if !r.Used() {
			list = append(list, Unused{r.Name(), p.options.Route(r.Name()).Match})
		}
	})
	slices.SortFunc(list, func(a, b Unused) int { return strings.Compare(a.Name, b.Name) })
	return list[:min(len(list), maxUnused)]
}

// queued sums all queues, including those of upstreams that are not shown.
func queued(upstreams []metrics.Upstream, process Process) Queue {
	all := process.RateLimited
	all.Add(Queue{Requests: process.Paused})
	for i := range upstreams {
		u := &upstreams[i]
		all.Add(Queue{Requests: u.Guard.Queued, LongestMS: u.LongestWait.Milliseconds()})
	}
	return all
}

func (h *history) route(r *routeHistory, now time.Time) Route {
	c := r.route.Read()
	recent, first := h.step(1), h.step(Points)
	last, latest := c.Since(&r.steps[first]), c.Since(&r.steps[recent])
	out := Route{
		Name: r.route.Name(), InFlight: r.route.InFlight(), Waiting: r.route.Waiting(),
		Now: spanOf(&latest, now.Sub(h.at[recent])), Last: spanOf(&last, now.Sub(h.at[first])),
		Outcomes: []Count{}, Retried: []Count{},
	}
	for _, o := range policy.AllOutcomes() {
		if n := last.Outcomes[o]; n > 0 && kinds[o] >= failed {
			out.Outcomes = append(out.Outcomes, Count{Name: o.String(), Words: o.Words(), Why: o.Explain(), Kind: kinds[o].String(), Count: n})
		}
	}
	for _, why := range policy.AllReasons() {
		if n := last.Retries[why]; n > 0 {
			out.Retried = append(out.Retried, Count{Name: why.String(), Words: why.Words(), Why: why.Explain(), Count: n})
		}
	}
	t := &out.History
	for i := Points; i > 0; i-- {
		d := r.steps[h.step(i-1)].Since(&r.steps[h.step(i)])
		k := byKind(&d)
		t.FirstAttempt, t.Recovered, t.Failed = append(t.FirstAttempt, k[firstAttempt]), append(t.Recovered, k[recovered]), append(t.Failed, k[failed])
		t.P99, t.AttemptP99 = append(t.P99, quantile(&d.Requests, 0.99)), append(t.AttemptP99, quantile(&d.Attempts, 0.99))
	}
	return out
}

// spanOf returns what was counted in a stretch of that length.
func spanOf(c *metrics.Counts, d time.Duration) Span {
	k := byKind(c)
	return Span{
		Seconds: d.Seconds(), Requests: k[firstAttempt] + k[recovered] + k[failed] + k[clientEnd],
		FirstAttempt: k[firstAttempt], Recovered: k[recovered], Failed: k[failed], ClientEnd: k[clientEnd], Retries: sum(c.Retries[:]),
		P50: quantile(&c.Requests, 0.5), P99: quantile(&c.Requests, 0.99), AttemptP50: quantile(&c.Attempts, 0.5), AttemptP99: quantile(&c.Attempts, 0.99),
		Timed: sum(c.Requests[:]), TimedAttempts: sum(c.Attempts[:]),
	}
}

func (h *history) upstreamState(u *metrics.Upstream, now time.Time) Upstream {
	g := &u.Guard
	out := Upstream{
		Name: u.Name, Breaker: g.Breaker.String(), BreakerWhy: g.Breaker.Explain(), Limit: g.ConcurrencyLimit, InFlight: g.InFlight, Abandoned: g.Abandoned, Waiting: g.Queued, LongestMS: u.LongestWait.Milliseconds(),
		HasBudget: u.HasBudget, Budget: u.BudgetTokens, Active: u.Active, Idle: u.Idle,
	}
	if g.Breaker != breaker.Closed {
		out.OpenedBy = g.OpenedBy.Explain()
	}
	if f := u.LastFailure; f != nil && now.Sub(f.At) < Window {
		out.LastFailure = &Failure{AtMS: f.At.UnixMilli(), Address: f.Address, Kind: f.Kind, Error: f.Text}
	}
	t := &out.History
	for _, known := range h.upstreams {
		for i := range Points {
			if known.name == u.Name {
				pt := &known.points[(h.looks+1+i)%Points]
				t.Breaker, t.Limit, t.InFlight = append(t.Breaker, pt.state()), append(t.Limit, pt.limit), append(t.InFlight, pt.inFlight)
				t.Waiting, t.Budget = append(t.Waiting, pt.waiting), append(t.Budget, pt.budget)
			}
		}
	}
	return out
}

// state returns the state of the breaker, or "" for a step before the first one.
func (p *upstreamPoint) state() string {
	if !p.known {
		return ""
	}
	return p.breaker.String()
}
