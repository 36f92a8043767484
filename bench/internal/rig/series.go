package rig

import (
	"fmt"
	"strconv"
	"strings"
)

// Series is a scrape of metrics: values by name with labels.
type Series map[string]float64

// ReadSeries reads the Prometheus text format as far as the proxy uses it: a name, perhaps labels,
// and a value on each line.
func ReadSeries(text string) (Series, error) {
	s := Series{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
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
	return s, nil
}

// Sum adds up a metric of the proxy over all its labels. name is without the prefix retryproxy_.
func (s Series) Sum(name string) float64 {
	return s.By(name, "")[""]
}

// By adds up a metric of the proxy by the value of one label; "" is none.
func (s Series) By(name, label string) map[string]float64 {
	out := map[string]float64{}
	for k, v := range s {
		metric, labels, _ := strings.Cut(k, "{")
		if metric == "retryproxy_"+name {
			value := ""
			if label != "" {
				_, value, _ = strings.Cut(labels, label+`="`)
				value, _, _ = strings.Cut(value, `"`)
			}
			out[value] += v
		}
	}
	return out
}
