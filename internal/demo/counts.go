package demo

import (
	"fmt"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// counts is what the proxy counted for one route.
type counts struct {
	outcomes map[string]float64 // requests
	attempts float64
	retries  map[string]float64 // by reason
}

// requests returns the number of completed requests.
func (c *counts) requests() float64 {
	n := 0.0
	for _, requests := range c.outcomes {
		n += requests
	}
	return n
}

// parseCounts reads a response of /metrics in Prometheus's text format. It returns the counts by route.
func parseCounts(metrics string) (map[string]*counts, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(metrics + "\n"))
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	routes := map[string]*counts{}
	for name, take := range map[string]func(c *counts, labels map[string]string, n float64){
		"retryproxy_outcomes_total": func(c *counts, labels map[string]string, n float64) { c.outcomes[labels["outcome"]] += n },
		"retryproxy_attempts_total": func(c *counts, _ map[string]string, n float64) { c.attempts += n },
		"retryproxy_retries_total":  func(c *counts, labels map[string]string, n float64) { c.retries[labels["reason"]] += n },
	} {
		for _, m := range families[name].GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			route := labels["route"]
			if routes[route] == nil {
				routes[route] = &counts{outcomes: map[string]float64{}, retries: map[string]float64{}}
			}
			take(routes[route], labels, m.GetCounter().GetValue())
		}
	}
	return routes, nil
}
