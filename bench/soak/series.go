package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// series is a scrape: value by metric name with labels.
type series map[string]float64

// readSeries reads the Prometheus text format as far as it is needed here:
// lines of a name, perhaps labels, and a value.
func readSeries(r io.Reader) (series, error) {
	s := make(series)
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: line %q: %w", line, err)
		}
		s[line[:cut]] = v
	}
	return s, sc.Err()
}

// sum adds up a metric over all its labels. The name is without the prefix of
// the proxy's own metrics.
func (s series) sum(name string) float64 {
	total := 0.0
	for k, v := range s {
		if metric, _, _ := strings.Cut(k, "{"); metric == "retryproxy_"+name {
			total += v
		}
	}
	return total
}

// by adds up a metric by the value of one label.
func (s series) by(name, label string) map[string]float64 {
	out := make(map[string]float64)
	for k, v := range s {
		metric, labels, _ := strings.Cut(k, "{")
		if metric != "retryproxy_"+name {
			continue
		}
		_, value, _ := strings.Cut(labels, label+`="`)
		value, _, _ = strings.Cut(value, `"`)
		out[value] += v
	}
	return out
}
