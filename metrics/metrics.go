package metrics

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Options configures New, which copies the slices.
type Options struct {
	Version  string // shown in build_info
	Revision string // likewise

	// Refusals are the labels that Refused accepts, and DialErrorKinds those of
	// Upstream.DialErrors, in its order. They are closed sets, declared by the packages
	// that refuse and dial.
	Refusals       []string
	DialErrorKinds []string

	DeadlineFields []string // labels of BadDeadline, in its order
}

// Metrics holds all metrics of one process. It is safe for concurrent use.
type Metrics struct {
	registry       *prometheus.Registry
	build          [3]string // label values of build_info
	dialErrorKinds []string

	refusals     []string // labels; the last is other
	refusalIndex map[string]int
	refused      []atomic.Uint64

	deadlineFields []string
	badDeadlines   []atomic.Uint64

	reloadFailures  atomic.Uint64
	reloadSuccesses atomic.Uint64
	lastReloadOK    atomic.Bool
	lastSuccess     atomic.Int64 // Unix milliseconds; 0 means never

	source atomic.Pointer[func() Snapshot]

	mu     sync.Mutex        // guards routes
	routes map[string]*Route // by name
}

// New returns a Metrics with a registry of its own. It also exports metrics of the Go
// runtime and the process that are cheap to collect.
func New(o Options) *Metrics {
	m := &Metrics{
		registry:       prometheus.NewRegistry(),
		build:          [3]string{valid(o.Version), valid(o.Revision), runtime.Version()},
		dialErrorKinds: slices.Clone(o.DialErrorKinds),
		refusals:       withOther(o.Refusals),
		deadlineFields: slices.Clone(o.DeadlineFields),
		badDeadlines:   make([]atomic.Uint64, len(o.DeadlineFields)),
		routes:         make(map[string]*Route),
	}
	m.refused = make([]atomic.Uint64, len(m.refusals))
	m.refusalIndex = make(map[string]int, len(m.refusals))
	for i, label := range m.refusals {
		m.refusalIndex[label] = i
	}
	m.registry.MustRegister(
		collector{m},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// withOther returns the labels without duplicates, and other as the last.
func withOther(labels []string) []string {
	out := make([]string, 0, len(labels)+1)
	for _, l := range labels {
		if l != other && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return append(out, other)
}

// Route returns the counts of the route of that name, and makes them at first use. The
// first zeroRoutes routes get a stripe per core; later ones save the memory.
func (m *Metrics) Route(name string) *Route {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = valid(name)
	if r := m.routes[name]; r != nil {
		return r
	}
	stripes := 1
	if len(m.routes) < zeroRoutes {
		stripes = stripesFor(runtime.GOMAXPROCS(0))
	}
	r := newRoute(name, stripes)
	m.routes[name] = r
	return r
}

// Retain drops the counts of all routes except those named, after a reload, so that
// changing names do not accumulate. Running requests may still use the dropped ones, which
// are no longer exported.
func (m *Metrics) Retain(names []string) {
	keep := make(map[string]bool, len(names))
	for _, name := range names {
		keep[valid(name)] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.routes {
		if !keep[name] {
			delete(m.routes, name)
		}
	}
}

// Refused counts a request refused by the parser. A reason outside Options.Refusals counts
// as other.
func (m *Metrics) Refused(reason string) {
	i, known := m.refusalIndex[reason]
	if !known {
		i = len(m.refused) - 1
	}
	m.refused[i].Add(1)
}

// BadDeadline counts a client's header that could not be parsed, by its index in
// Options.DeadlineFields. It ignores an index out of range.
func (m *Metrics) BadDeadline(field int) {
	if uint(field) < uint(len(m.badDeadlines)) {
		m.badDeadlines[field].Add(1)
	}
}

// ConfigLoaded records that a configuration was applied at the time at, or refused: at
// start and at every reload.
func (m *Metrics) ConfigLoaded(ok bool, at time.Time) {
	m.lastReloadOK.Store(ok)
	if !ok {
		m.reloadFailures.Add(1)
		return
	}
	m.reloadSuccesses.Add(1)
	m.lastSuccess.Store(at.UnixMilli())
}

// Watch makes every scrape call source for the state of the proxy. It replaces an earlier
// source. source is called concurrently.
func (m *Metrics) Watch(source func() Snapshot) { m.source.Store(&source) }

// sortedRoutes returns the routes sorted by name, so that every scrape has the same order.
func (m *Metrics) sortedRoutes() []*Route {
	m.mu.Lock()
	routes := make([]*Route, 0, len(m.routes))
	for _, r := range m.routes {
		routes = append(routes, r)
	}
	m.mu.Unlock()
	slices.SortFunc(routes, func(a, b *Route) int { return strings.Compare(a.name, b.name) })
	return routes
}

// collectOwn exports the counts that belong to no route.
func (m *Metrics) collectOwn(ch chan<- prometheus.Metric) {
	for i, label := range m.refusals {
		parseRefusalsTotal.emit(ch, float64(m.refused[i].Load()), label)
	}
	for i, field := range m.deadlineFields {
		badDeadlinesTotal.emit(ch, float64(m.badDeadlines[i].Load()), field)
	}
	reloadSuccessful.emit(ch, oneIf(m.lastReloadOK.Load()))
	reloadSeconds.emit(ch, float64(m.lastSuccess.Load())/1e3)
	reloadsTotal.emit(ch, float64(m.reloadFailures.Load()), "failure")
	reloadsTotal.emit(ch, float64(m.reloadSuccesses.Load()), "success")
	buildInfo.emit(ch, 1, m.build[:]...)
}
