package advise

import (
	"errors"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
)

// The names used here must match those of package metrics.
func TestParseReadsWhatMetricsShow(t *testing.T) {
	m := metrics.New(metrics.Options{})
	r := m.Route("search").Near()
	for range 2 {
		r.RequestBegan()
	}
	r.AttemptDone(policy.Rejected, 503, 2*time.Millisecond)
	r.Retry(policy.ReasonStatus503)
	r.AttemptDone(policy.ClassNone, 200, 40*time.Millisecond)
	r.RequestDone([]byte("GET"), 200, policy.OutcomeRecovered, 150*time.Millisecond, 148*time.Millisecond, 2)
	r.AttemptDone(policy.Unknown, 0, time.Hour)
	r.WouldRetry(policy.ReasonAttemptTimeout)
	r.RequestDone([]byte("GET"), 504, policy.GaveUp(policy.ReasonDryRun), time.Hour, 0, 1)
	page := httptest.NewRecorder()
	m.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))

	s, err := Parse(page.Body.String())
	if err != nil || len(s.Routes) != 1 {
		t.Fatalf("%v %+v", err, s)
	}
	c := s.Routes["search"]
	if c.Attempts != 3 || c.Good != 1 || c.Silent != 1 || c.Requests() != 2 || c.Outcomes["recovered"] != 1 || c.Outcomes["gave_up_dry_run"] != 1 ||
		c.Retries["status_503"] != 1 || c.Would["attempt_timeout"] != 1 {
		t.Errorf("%+v", c)
	}
	want := spread(map[float64]float64{0.0025: 1, 0.05: 1, 0: 1})
	if !slices.Equal(c.Attempt.Edges, want.Edges) || !slices.Equal(c.Attempt.Counts, want.Counts) {
		t.Errorf("attempts %+v, want %+v", c.Attempt, want)
	}
	if want := spread(map[float64]float64{0.25: 1, 0: 1}); !slices.Equal(c.Request.Counts, want.Counts) {
		t.Errorf("requests %+v, want %+v", c.Request, want)
	}
}

func TestParseRefusesOtherPages(t *testing.T) {
	if _, err := Parse("up 1"); !errors.Is(err, ErrNoRoutes) {
		t.Errorf("another program's: %v", err)
	}
	for _, text := range []string{"<html>", "retryproxy_outcomes_total{route=\"a\"", "x{ 1"} {
		if s, err := Parse(text); err == nil {
			t.Errorf("%q gave %+v", text, s)
		}
	}
}

func TestParseSettingsReadsTheView(t *testing.T) {
	got, err := ParseSettings(`{"position": "inbound", "routes": [{"name": "default", "settings": {"DRY_RUN": {"value": "true"}, "MAX_RETRIES": {"value": "8", "set_by": "X"},
		"ATTEMPT_TIMEOUT": {"value": "1m30s"}, "REQUEST_TIMEOUT": {"value": "0s"}, "QUEUE_TIMEOUT": {"value": "7s"}, "BREAKER": {"value": "queue"}}},
		{"name": "b", "settings": {"QUEUE_TIMEOUT": {"value": "7s"}, "BREAKER": {"value": "fail_fast"}}}]}`)
	if err != nil || len(got) != 2 {
		t.Fatalf("%v %+v", err, got)
	}
	if d := got["default"]; !d.DryRun || d.MaxRetries != 8 || d.AttemptTimeout != 90*time.Second || d.RequestTimeout != 0 || d.QueueTimeout != 7*time.Second || d.Values["DRY_RUN"] != "true" {
		t.Errorf("%+v", d)
	}
	if b := got["b"]; b.DryRun || b.MaxRetries != 3 || b.RequestTimeout != 30*time.Second || b.QueueTimeout != 0 {
		t.Errorf("%+v", b)
	}
	if _, err := ParseSettings("no"); err == nil {
		t.Error("no error")
	}
}
