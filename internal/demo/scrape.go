package demo

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/retryproxy/retryproxy/internal/advise"
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
	page, err := advise.Parse(string(fetch(h)))
	if err != nil {
		return routes // nothing was sent yet
	}
	for i, name := range names {
		if c := page.Routes[name]; c != nil {
			routes[i] = routeCounts{name, int(c.Attempts), whole(c.Outcomes), whole(c.Retries)}
		}
	}
	return routes
}

// whole are the counts that are not zero.
func whole(counts map[string]float64) map[string]int {
	out := map[string]int{}
	for label, n := range counts {
		if n != 0 {
			out[label] = int(n)
		}
	}
	return out
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
