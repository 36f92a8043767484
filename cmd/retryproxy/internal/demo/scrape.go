package demo

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// routeCounts is what /metrics says about one route.
type routeCounts struct {
	name     string
	attempts int
	outcomes map[string]int // those that occurred, by label
	retries  map[string]int // likewise, by reason
}

func (r *routeCounts) requests() int { return sum(r.outcomes, "") }

// sum adds the counts of the labels that begin with prefix.
func sum(counts map[string]int, prefix string) int {
	total := 0
	for label, n := range counts {
		if strings.HasPrefix(label, prefix) {
			total += n
		}
	}
	return total
}

// scrape asks the handler of /metrics, without a socket, and gives the routes
// in the order of names.
func scrape(h http.Handler, names []string) []routeCounts {
	routes := make([]routeCounts, len(names))
	for i, name := range names {
		routes[i] = routeCounts{name: name, outcomes: map[string]int{}, retries: map[string]int{}}
	}
	for line := range bytes.Lines(fetch(h)) {
		s, ok := parseSample(string(line))
		i := slices.Index(names, s.labels["route"])
		if !ok || i < 0 || s.value == 0 {
			continue
		}
		switch s.name {
		case "retryproxy_attempts_total":
			routes[i].attempts += s.value
		case "retryproxy_outcomes_total":
			routes[i].outcomes[s.labels["outcome"]] = s.value
		case "retryproxy_retries_total":
			routes[i].retries[s.labels["reason"]] = s.value
		}
	}
	return routes
}

// page is a response kept in memory.
type page struct {
	header http.Header
	bytes.Buffer
}

func (p *page) Header() http.Header { return p.header }
func (p *page) WriteHeader(int)     {}

func fetch(h http.Handler) []byte {
	p := &page{header: http.Header{}}
	r, err := http.NewRequest(http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil
	}
	h.ServeHTTP(p, r)
	return p.Bytes()
}

// sample is a line of the text format with a whole number.
type sample struct {
	name   string
	labels map[string]string
	value  int
}

// parseSample reads name{label="value",...} number. Values with escapes, which
// the demo's routes do not have, and numbers with a fraction are not read.
func parseSample(line string) (sample, bool) {
	name, rest, ok := strings.Cut(strings.TrimSpace(line), "{")
	text, number, ok2 := strings.Cut(rest, "} ")
	value, err := strconv.Atoi(number)
	if !ok || !ok2 || err != nil || strings.Contains(text, `\`) {
		return sample{}, false
	}
	s := sample{name: name, labels: map[string]string{}, value: value}
	for pair := range strings.SplitSeq(strings.TrimSuffix(text, `"`), `",`) {
		label, v, ok := strings.Cut(pair, `="`)
		if !ok {
			return sample{}, false
		}
		s.labels[label] = v
	}
	return s, true
}
