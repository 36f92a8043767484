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

	// Refusals, DialErrorKinds and DeadlineFields are the labels of Refused,
	// Upstream.DialErrors and BadDeadline, in their order. They are closed sets, declared by
	// the packages that refuse, dial and parse.
	Refusals       []string
	DialErrorKinds []string
	DeadlineFields []string
}

// Metrics holds all metrics of one process. It is safe for concurrent use.
type Metrics struct {
	registry       *prometheus.Registry
	build          [3]string // label values of build_info
	dialErrorKinds []string

	refused      closedSet
	badDeadlines closedSet

	reloadFailures  atomic.Uint64
	reloadSuccesses atomic.Uint64
	lastReloadOK    atomic.Bool
	lastSuccess     atomic.Int64 // Unix milliseconds; 0 means never

	source atomic.Pointer[func() Snapshot]

	beginning beginning // of requests and configurations

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
		refused:        newClosedSet(o.Refusals),
		badDeadlines:   newClosedSet(o.DeadlineFields),
		routes:         make(map[string]*Route),
	}
	m.registry.MustRegister(
		collector{m},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// closedSet counts the members of a closed set by their index. It ignores other indexes.
type closedSet struct {
	labels []string
	counts []atomic.Uint64
}

func newClosedSet(labels []string) closedSet {
	return closedSet{slices.Clone(labels), make([]atomic.Uint64, len(labels))}
}

func (s *closedSet) add(i int) {
	if uint(i) < uint(len(s.counts)) {
		s.counts[i].Add(1)
	}
}

func (s *closedSet) emit(ch chan<- prometheus.Metric, f *family) {
	for i, label := range s.labels {
		f.emit(ch, float64(s.counts[i].Load()), label)
	}
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
	r := newRoute(name, stripes, &m.beginning)
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

// Refused counts a request refused by the parser, by the index of the reason in Options.Refusals.
func (m *Metrics) Refused(reason int) { m.refused.add(reason) }

// BadDeadline counts a client's header that could not be parsed, by its index in
// Options.DeadlineFields.
func (m *Metrics) BadDeadline(field int) { m.badDeadlines.add(field) }

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
	m.beginning.happened() // it may have added an upstream, whose state changes without a request
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
	m.refused.emit(ch, parseRefusalsTotal)
	m.badDeadlines.emit(ch, badDeadlinesTotal)
	reloadSuccessful.emit(ch, oneIf(m.lastReloadOK.Load()))
	reloadSeconds.emit(ch, float64(m.lastSuccess.Load())/1e3)
	reloadsTotal.emit(ch, float64(m.reloadFailures.Load()), "failure")
	reloadsTotal.emit(ch, float64(m.reloadSuccesses.Load()), "success")
	buildInfo.emit(ch, 1, m.build[:]...)
}
