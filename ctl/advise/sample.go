package advise

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Sample is what a process had counted at one moment, since its start.
type Sample struct {
	Started float64 // when the process started, in seconds since 1970; 0: unknown
	Routes  map[string]*Counts
}

// Counts are the counts of one route.
type Counts struct {
	Outcomes  map[string]float64 // requests
	Attempts  float64
	Good      float64 // of Attempts, those that succeeded
	Silent    float64 // of Attempts, those without a response that may have been processed
	Retries   map[string]float64
	Would     map[string]float64 // retries of a dry run
	Hedges    float64            // attempts sent beside slow ones
	Overtaken float64            // of Attempts, those overtaken by the other attempt of a hedge
	Attempt   Histogram          // durations of attempts
	Request   Histogram          // durations of requests, including bodies
}

// Histogram holds, for each edge, the number of values above the previous edge and up to Edges[i]
// seconds. The last count, beyond the last edge, is of values above all edges.
type Histogram struct {
	Edges  []float64
	Counts []float64
}

// Total returns the number of values.
func (h *Histogram) Total() float64 {
	n := 0.0
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// add adds the values of o, which has the same edges unless one of them is empty.
func (h *Histogram) add(o Histogram) {
	if len(h.Counts) == 0 {
		*h = Histogram{Edges: o.Edges, Counts: slices.Clone(o.Counts)}
		return
	}
	for i := range min(len(h.Counts), len(o.Counts)) {
		h.Counts[i] += o.Counts[i]
	}
}

// Requests returns the number of completed requests.
func (c *Counts) Requests() float64 { return sum(c.Outcomes, "") }

// sum adds the counts whose labels begin with prefix.
func sum(counts map[string]float64, prefix string) float64 {
	total := 0.0
	for label, n := range counts {
		if strings.HasPrefix(label, prefix) {
			total += n
		}
	}
	return total
}

func newCounts() *Counts {
	return &Counts{Outcomes: map[string]float64{}, Retries: map[string]float64{}, Would: map[string]float64{}}
}

// ErrNoRoutes means that the metrics are not a retryproxy's.
var ErrNoRoutes = errors.New("these are not the metrics of a retryproxy: they contain no route")

// Parse reads a response of /metrics in Prometheus's text format.
func Parse(text string) (*Sample, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text + "\n"))
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	s := &Sample{Routes: map[string]*Counts{}}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if name == "process_start_time_seconds" {
				s.Started = m.GetGauge().GetValue()
			}
			take, known := takers[name]
			if !known {
				continue
			}
			route := labels["route"]
			if s.Routes[route] == nil {
				s.Routes[route] = newCounts()
			}
			v := value{labels: labels, n: m.GetCounter().GetValue()}
			for _, b := range m.GetHistogram().GetBucket() {
				v.bucket(b.GetUpperBound(), float64(b.GetCumulativeCount()))
			}
			v.bucket(math.Inf(1), float64(m.GetHistogram().GetSampleCount()))
			take(s.Routes[route], &v)
		}
	}
	if len(s.Routes) == 0 {
		return nil, ErrNoRoutes
	}
	return s, nil
}

// value is one metric of a family.
type value struct {
	labels    map[string]string
	n         float64
	histogram Histogram
	below     float64 // the count up to the previous edge
}

// bucket adds a cumulative count; the edges ascend.
func (v *value) bucket(edge, upTo float64) {
	h := &v.histogram
	if len(h.Counts) > len(h.Edges) {
		return // the bucket above all edges already exists
	}
	if !math.IsInf(edge, 1) {
		h.Edges = append(h.Edges, edge)
	}
	h.Counts = append(h.Counts, upTo-v.below)
	v.below = upTo
}

// takers store a metric in its field, by name.
var takers = map[string]func(c *Counts, v *value){
	"retryproxy_outcomes_total":           func(c *Counts, v *value) { c.Outcomes[v.labels["outcome"]] += v.n },
	"retryproxy_retries_total":            func(c *Counts, v *value) { c.Retries[v.labels["reason"]] += v.n },
	"retryproxy_dry_run_retries_total":    func(c *Counts, v *value) { c.Would[v.labels["reason"]] += v.n },
	"retryproxy_hedges_total":             func(c *Counts, v *value) { c.Hedges += v.n },
	"retryproxy_attempts_total":           takeAttempts,
	"retryproxy_attempt_duration_seconds": func(c *Counts, v *value) { c.Attempt.add(v.histogram) },
	"retryproxy_request_duration_seconds": func(c *Counts, v *value) { c.Request.add(v.histogram) },
}

func takeAttempts(c *Counts, v *value) {
	c.Attempts += v.n
	switch class := v.labels["class"]; {
	case class == "ok":
		c.Good += v.n
	case class == "overtaken":
		c.Good += v.n
		c.Overtaken += v.n
	case class == "unknown" && v.labels["code"] == "other":
		c.Silent += v.n
	}
}

// ErrRestarted means that the process was restarted between two samples.
var ErrRestarted = errors.New("the process was restarted between the two samples; ask again")

// since returns the counts since before, or all if before is nil.
func (s *Sample) since(before *Sample) (map[string]*Counts, error) {
	if before == nil {
		return s.Routes, nil
	}
	if s.Started != before.Started {
		return nil, ErrRestarted
	}
	out := map[string]*Counts{}
	for name, now := range s.Routes {
		old := before.Routes[name]
		if old == nil {
			old = newCounts()
		}
		var fell bool
		if out[name], fell = now.minus(old); fell { // a route that was removed and added again
			return nil, ErrRestarted
		}
	}
	return out, nil
}

// minus returns what was counted since old. fell reports whether a count decreased, which never
// happens within one process.
func (c *Counts) minus(old *Counts) (d *Counts, fell bool) {
	of := func(now, old float64) float64 {
		fell = fell || now < old
		return now - old
	}
	labels := func(now, old map[string]float64) map[string]float64 {
		out := map[string]float64{}
		for label, n := range now {
			out[label] = of(n, old[label])
		}
		return out
	}
	histogram := func(now, old Histogram) Histogram {
		out := Histogram{Edges: now.Edges, Counts: slices.Clone(now.Counts)}
		for i := range min(len(now.Counts), len(old.Counts)) {
			out.Counts[i] = of(now.Counts[i], old.Counts[i])
		}
		return out
	}
	d = &Counts{
		Outcomes: labels(c.Outcomes, old.Outcomes), Retries: labels(c.Retries, old.Retries), Would: labels(c.Would, old.Would),
		Attempts: of(c.Attempts, old.Attempts), Good: of(c.Good, old.Good), Silent: of(c.Silent, old.Silent),
		Hedges: of(c.Hedges, old.Hedges), Overtaken: of(c.Overtaken, old.Overtaken),
		Attempt: histogram(c.Attempt, old.Attempt), Request: histogram(c.Request, old.Request),
	}
	return d, fell
}
