package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryproxy/retryproxy/policy"
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

// zeroRoutes is the number of routes up to which members of closed sets are exported before
// they are first counted, so that rates and alerts have a starting point. With more routes,
// some 150 empty series per route cost more than they help, and a route is exported once it
// is used.
const zeroRoutes = 100

func (r *Route) collect(ch chan<- prometheus.Metric, zeros bool) {
	c := r.totals()
	if c == nil {
		if !zeros {
			return
		}
		c = new(totals)
	}
	c.collectSets(ch, r.name, zeros)
	c.collectCodes(ch, r.name)
	c.tokens.collect(ch, r.name)
	c.collectHistograms(ch, r.name, zeros, r.exemplars.Load())
	requestsInFlight.emit(ch, float64(c.inFlight), r.name)
	requestsWaiting.emit(ch, float64(c.waiting), r.name)
}

func (c *Stripe) collectSets(ch chan<- prometheus.Metric, route string, zeros bool) {
	for _, o := range policy.AllOutcomes() {
		if n := c.outcomes[o].Load(); n > 0 || zeros {
			outcomesTotal.emit(ch, float64(n), route, o.String())
		}
	}
	for _, reason := range policy.AllReasons() {
		if n := c.retries[reason].Load(); n > 0 || zeros && reason.ForRetry() {
			retriesTotal.emit(ch, float64(n), route, reason.String())
		}
		if n := c.dryRunRetries[reason].Load(); n > 0 || zeros && reason.ForRetry() {
			dryRunRetriesTotal.emit(ch, float64(n), route, reason.String())
		}
	}
	if n := c.hedges.Load(); n > 0 || zeros {
		hedgesTotal.emit(ch, float64(n), route)
		hedgesWonTotal.emit(ch, float64(c.hedgesWon.Load()), route)
	}
	if n := c.fallbackFailures.Load(); n > 0 || zeros {
		fallbackFailuresTotal.emit(ch, float64(n), route)
	}
	for _, kind := range policy.AllFaultKinds() {
		if n := c.faultInjections[kind].Load(); n > 0 || zeros {
			faultInjectionsTotal.emit(ch, float64(n), route, kind.String())
		}
	}
	if n := c.retries[policy.ReasonIdleClose].Load(); n > 0 || zeros {
		idleCloseRetriesTotal.emit(ch, float64(n), route)
	}
}

func (c *Stripe) collectCodes(ch chan<- prometheus.Metric, route string) {
	for i := range c.byMethod {
		c.byMethod[i].each(func(code string, n uint64) {
			requestsTotal.emit(ch, float64(n), route, methodLabels[i], code)
		})
	}
	for _, class := range policy.AllClasses() {
		c.byClass[class].each(func(code string, n uint64) {
			attemptsTotal.emit(ch, float64(n), route, class.String(), code)
		})
	}
}

func (c *Stripe) collectHistograms(ch chan<- prometheus.Metric, route string, zeros bool, e *exemplars) {
	c.request.collect(ch, requestSeconds, route, zeros, e)
	c.attempt.collect(ch, attemptSeconds, route, zeros, nil)
	ch <- c.attemptsPerRequest.metric(attemptsPerRequest, route)
	if zeros || c.backoff.count() > 0 {
		ch <- c.backoff.metric(backoffSeconds, backoffLadder, route)
	}
	if zeros || c.queue.count() > 0 {
		ch <- c.queue.metric(queueSeconds, backoffLadder, route)
	}
	if zeros || c.added.count() > 0 {
		ch <- c.added.metric(addedSeconds, durationLadder, route)
	}
}
