package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/tokens"
)

// collector exports a Metrics to a registry. It is a separate type so that Describe and
// Collect are not methods of Metrics.
type collector struct{ m *Metrics }

// Describe sends every family, so that the registry refuses any other.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range families {
		ch <- f.desc
	}
}

// Collect sends all current values.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	routes := c.m.sortedRoutes()
	zeros := len(routes) <= zeroRoutes
	for _, r := range routes {
		r.collect(ch, zeros)
	}
	c.m.collectOwn(ch)
	if source := c.m.source.Load(); source != nil {
		s := (*source)()
		s.collect(ch, c.m.dialErrorKinds)
	}
}

// zeroRoutes is the number of routes up to which outcomes and retries are exported before they are
// first counted, so that the rates in alerts have a starting point. The other families of a route begin when they
// first count something: most are of patterns that a route does not use. With more routes, some 60
// empty series per route cost more than they help, and a route is exported once it is used.
const zeroRoutes = 100

func (r *Route) collect(ch chan<- prometheus.Metric, zeros bool) {
	if !zeros && !r.Used() {
		return
	}
	r.collectSets(ch, zeros)
	r.collectCodes(ch)
	r.collectTokens(ch)
	r.collectHistograms(ch)
	requestsInFlight.emit(ch, float64(r.InFlight()), r.name)
	requestsWaiting.emit(ch, float64(r.Waiting()), r.name)
}

func (r *Route) collectSets(ch chan<- prometheus.Metric, zeros bool) {
	count := func(f *family, n uint64, zero bool, labels ...string) {
		if n > 0 || zeros && zero {
			f.emit(ch, float64(n), append([]string{r.name}, labels...)...)
		}
	}
	for _, o := range policy.AllOutcomes() {
		count(outcomesTotal, r.sum(func(s *Stripe) uint64 { return s.outcomes[o].Load() }), true, o.String())
	}
	dryRun := r.sum(func(s *Stripe) uint64 { return total(s.dryRunRetries[:]) }) > 0
	for _, reason := range policy.AllReasons() {
		count(retriesTotal, r.sum(func(s *Stripe) uint64 { return s.retries[reason].Load() }), reason.ForRetry(), reason.String())
		count(dryRunRetriesTotal, r.sum(func(s *Stripe) uint64 { return s.dryRunRetries[reason].Load() }), dryRun && reason.ForRetry(), reason.String())
	}
	won := r.sum(func(s *Stripe) uint64 { return s.hedgesWon.Load() }) // first, so that never more are won than sent
	if hedges := r.sum(func(s *Stripe) uint64 { return s.hedges.Load() }); hedges > 0 {
		hedgesTotal.emit(ch, float64(hedges), r.name)
		hedgesWonTotal.emit(ch, float64(won), r.name)
	}
	count(fallbackFailuresTotal, r.sum(func(s *Stripe) uint64 { return s.fallbackFailures.Load() }), false)
	count(idleCloseRetriesTotal, r.sum(func(s *Stripe) uint64 { return s.retries[policy.ReasonIdleClose].Load() }), true)
}

// total adds counts.
func total(counts []atomic.Uint64) (n uint64) {
	for i := range counts {
		n += counts[i].Load()
	}
	return n
}

func (r *Route) collectCodes(ch chan<- prometheus.Metric) {
	for i, method := range methodLabels {
		r.eachCode(func(s *Stripe) *codeTable { return &s.byMethod[i] }, func(code string, n uint64) {
			requestsTotal.emit(ch, float64(n), r.name, method, code)
		})
	}
	for _, class := range policy.AllClasses() {
		r.eachCode(func(s *Stripe) *codeTable { return &s.byClass[class] }, func(code string, n uint64) {
			attemptsTotal.emit(ch, float64(n), r.name, class.String(), code)
		})
	}
}

// collectTokens sends the counts, all of them once there are any.
func (r *Route) collectTokens(ch chan<- prometheus.Metric) {
	var counts [tokens.NumParts][tokens.NumFates]uint64
	for p := range counts {
		for f := range counts[p] {
			counts[p][f] = r.sum(func(s *Stripe) uint64 { return s.tokens[p][f].Load() })
		}
	}
	if counts == [tokens.NumParts][tokens.NumFates]uint64{} {
		return
	}
	for p := range counts {
		for f, n := range counts[p] {
			tokensTotal.emit(ch, float64(n), r.name, tokens.Part(p).String(), tokens.Fate(f).String())
		}
	}
}

// collectHistograms sends those that counted something.
func (r *Route) collectHistograms(ch chan<- prometheus.Metric) {
	e := r.exemplars.Load()
	for i, class := range codeClasses {
		if d := r.distribution(func(s *Stripe) *histogram { return s.request[i].Load() }); !d.empty() {
			ch <- e.with(d.metric(requestSeconds, &durationLadder, r.name, class), i)
		}
		if d := r.distribution(func(s *Stripe) *histogram { return s.attempt[i].Load() }); !d.empty() {
			ch <- d.metric(attemptSeconds, &durationLadder, r.name, class)
		}
	}
	for _, h := range []struct {
		family *family
		ladder *ladder
		of     func(*Stripe) *histogram
	}{
		{attemptsPerRequest, &attemptsLadder, func(s *Stripe) *histogram { return &s.attemptsPerRequest }},
		{backoffSeconds, &backoffLadder, func(s *Stripe) *histogram { return &s.backoff }},
		{queueSeconds, &backoffLadder, func(s *Stripe) *histogram { return &s.queue }},
		{addedSeconds, &durationLadder, func(s *Stripe) *histogram { return &s.added }},
	} {
		if d := r.distribution(h.of); !d.empty() {
			ch <- d.metric(h.family, h.ladder, r.name)
		}
	}
}
