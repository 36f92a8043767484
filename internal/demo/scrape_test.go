package demo

import (
	"reflect"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
)

func TestScrapeReadsWhatMetricsShow(t *testing.T) {
	m := metrics.New(metrics.Options{})
	r := m.Route("search").Near()
	m.Route("unasked").Near().RequestDone([]byte("GET"), 200, policy.OutcomeSuccess, time.Second, 0, 1)
	for range 3 {
		r.RequestBegan()
		r.AttemptDone(policy.Rejected, 503, time.Second)
		r.Retry(policy.ReasonStatus503)
		r.AttemptDone(policy.ClassNone, 200, time.Second)
		r.RequestDone([]byte("GET"), 200, policy.OutcomeRecovered, time.Second, time.Second, 2)
	}
	r.AttemptDone(policy.Unknown, 0, time.Second)
	got := scrape(m.Handler(), []string{"search", "idle"})
	want := []routeCounts{
		{"search", 7, map[string]int{"recovered": 3}, map[string]int{"status_503": 3}},
		{"idle", 0, map[string]int{}, map[string]int{}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if n := got[0].requests(); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

func TestSum(t *testing.T) {
	counts := map[string]int{"gave_up_deadline": 2, "gave_up_layered": 3, "success": 10}
	if got := sum(counts, "gave_up_"); got != 5 {
		t.Errorf("gave_up_: %d, want 5", got)
	}
	if got := sum(counts, ""); got != 15 {
		t.Errorf("all: %d, want 15", got)
	}
}
