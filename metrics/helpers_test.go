package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape gets the exposition over a real connection.
func scrape(t *testing.T, m *Metrics) page {
	t.Helper()
	server := httptest.NewServer(m.Handler())
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("scrape: status %d, error %v, body %q", resp.StatusCode, err, body)
	}
	return parsePage(t, string(body))
}

// page is a scrape: values by series, both as text.
type page map[string]string

func parsePage(t *testing.T, text string) page {
	t.Helper()
	p := make(page)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		cut := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") {
			cut = len(line)
		}
		if _, twice := p[line[:cut]]; twice {
			t.Errorf("%q is there twice", line[:cut])
		}
		p[line[:cut]] = strings.TrimSpace(line[cut:])
	}
	return p
}

// want checks values by series; an empty text means that the series is absent.
func (p page) want(t *testing.T, series map[string]string) {
	t.Helper()
	for name, value := range series {
		if got := p[name]; got != value {
			t.Errorf("%s = %q, want %q", name, got, value)
		}
	}
}

// sum adds up all series of a metric that have all the given labels.
func (p page) sum(t *testing.T, metric string, labels ...string) float64 {
	t.Helper()
	total := 0.0
	for name, value := range p {
		if !strings.HasPrefix(name, metric+"{") || !containsAll(name, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		total += v
	}
	return total
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}
