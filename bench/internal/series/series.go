// Package series reads what a proxy says at /metrics.
package series

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Series is a scrape: value by metric name with labels.
type Series map[string]float64

// Read reads the Prometheus text format as far as it is needed here:
// lines of a name, perhaps labels, and a value.
func Read(r io.Reader) (Series, error) {
	s := make(Series)
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

// Fetch reads the metrics of a proxy whose admin listener is at addr.
func Fetch(ctx context.Context, c *http.Client, addr string) (Series, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /metrics: status %d", resp.StatusCode)
	}
	return Read(resp.Body)
}

// Sum adds up a metric over all its labels. The name is without the prefix of
// the proxy's own metrics.
func (s Series) Sum(name string) float64 {
	total := 0.0
	for k, v := range s {
		if metric, _, _ := strings.Cut(k, "{"); metric == "retryproxy_"+name {
			total += v
		}
	}
	return total
}

// By adds up a metric by the value of one label.
func (s Series) By(name, label string) map[string]float64 {
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
