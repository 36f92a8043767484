package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// exemplars holds, for each bucket of the request durations of a route, the latest request in it
// whose trace is recorded. It is allocated when there is the first one, and never grows.
type exemplars [numRows + 1][maxEdges + 1]atomic.Pointer[exemplar]

type exemplar struct {
	traceID string
	took    time.Duration
	at      time.Time
}

// Traced makes a request the exemplar of its bucket. Call it after RequestDone with the same code
// and d, for a request whose trace is recorded. It allocates.
func (s *Stripe) Traced(traceID string, code int, d time.Duration) {
	all := s.exemplars.Load()
	if all == nil {
		s.exemplars.CompareAndSwap(nil, new(exemplars))
		all = s.exemplars.Load()
	}
	d = max(d, 0)
	all[codeClass(code)][durationLadder.bucket(int64(d))].Store(&exemplar{traceID, d, time.Now()})
}

// with adds the exemplars of a class of codes to the metric m. e may be nil.
func (e *exemplars) with(m prometheus.Metric, class int) prometheus.Metric {
	if e == nil {
		return m
	}
	var of []prometheus.Exemplar
	for i := range e[class] {
		if x := e[class][i].Load(); x != nil {
			of = append(of, prometheus.Exemplar{Value: x.took.Seconds(), Labels: prometheus.Labels{"trace_id": x.traceID}, Timestamp: x.at})
		}
	}
	if of == nil {
		return m
	}
	return prometheus.MustNewMetricWithExemplars(m, of...)
}
