package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// asked returns a scrape by a client that accepts a format, and its Content-Type.
func asked(t *testing.T, m *Metrics, accept string) (text, contentType string) {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	m.Handler().ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, err)
	}
	return string(body), w.Header().Get("Content-Type")
}

const openMetrics = "application/openmetrics-text;version=1.0.0"

var exemplarLine = regexp.MustCompile(`(?m)^(.*) # \{trace_id="(.*)"\} (\S+) \S+$`)

func TestABucketHasItsLatestTraceAsExemplar(t *testing.T) {
	m := New(Options{})
	r := m.Route("a").Near()
	for _, one := range []struct {
		id   string
		code int
		took time.Duration
	}{
		{"1st", 200, 30 * time.Millisecond}, {"2nd", 204, 50 * time.Millisecond}, {"slow", 200, time.Hour},
		{"bad", 503, 30 * time.Millisecond}, {"gone", 0, -1}, {"", 404, time.Second},
	} {
		r.RequestBegan()
		r.RequestDone([]byte("GET"), one.code, policy.OutcomeSuccess, one.took, 0, 1)
		if one.id != "" {
			r.Traced(one.id, one.code, one.took)
		}
	}
	text, contentType := asked(t, m, openMetrics)
	if !strings.HasPrefix(contentType, "application/openmetrics-text") || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("%s, ends with %q", contentType, text[len(text)-20:])
	}
	got := map[string]string{}
	for _, line := range exemplarLine.FindAllStringSubmatch(text, -1) {
		got[line[2]] = line[1] + " " + line[3]
	}
	const bucket = `retryproxy_request_duration_seconds_bucket{code_class="%s",route="a",le="%s"} 1 %s`
	want := map[string]string{
		"2nd":  strings.Replace(fmt.Sprintf(bucket, "2xx", "0.05", "0.05"), "} 1", "} 2", 1),
		"slow": strings.Replace(fmt.Sprintf(bucket, "2xx", "+Inf", "3600.0"), "} 1", "} 3", 1),
		"bad":  fmt.Sprintf(bucket, "5xx", "0.05", "0.03"),
		"gone": fmt.Sprintf(bucket, "none", "0.001", "0.0"),
	}
	if len(got) != len(want) {
		t.Errorf("exemplars: %q", got)
	}
	for id, line := range want {
		if got[id] != line {
			t.Errorf("%s: %q, expected %q", id, got[id], line)
		}
	}
	if text, _ := asked(t, m, "text/plain"); strings.Contains(text, "trace_id") {
		t.Error("the text format has exemplars, which it must not")
	}
}

// A route keeps one exemplar per bucket, however many traces there are.
func TestExemplarsAreBounded(t *testing.T) {
	m := New(Options{})
	route := m.Route("a")
	r := route.Near()
	if route.exemplars.Load() != nil {
		t.Error("memory for exemplars without a trace")
	}
	for i := range 20_000 {
		r.Traced(fmt.Sprint(i), 100+i%600, time.Duration(i)*time.Millisecond*50)
	}
	kept := 0
	all := route.exemplars.Load()
	for class := range all {
		for i := range all[class] {
			if all[class][i].Load() != nil {
				kept++
			}
		}
	}
	if most := len(codeClasses) * NumBuckets; kept > most || kept < 20 {
		t.Errorf("%d are kept, at most %d expected", kept, most)
	}
	text, _ := asked(t, m, openMetrics)
	if n := strings.Count(text, "trace_id"); n > kept {
		t.Errorf("%d exemplars in a scrape", n)
	}
}
