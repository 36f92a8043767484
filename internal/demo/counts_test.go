package demo

import (
	"reflect"
	"testing"
)

func TestCountsAreAddedUpByRoute(t *testing.T) {
	got, err := parseCounts(`# TYPE retryproxy_outcomes_total counter
retryproxy_outcomes_total{route="a",outcome="success"} 3
retryproxy_outcomes_total{route="a",outcome="recovered"} 2
# TYPE retryproxy_attempts_total counter
retryproxy_attempts_total{route="a",class="ok",code="2xx"} 5
retryproxy_attempts_total{route="a",class="unknown",code="5xx"} 2
retryproxy_attempts_total{route="b",class="ok",code="2xx"} 1
# TYPE retryproxy_retries_total counter
retryproxy_retries_total{route="a",reason="status"} 2
# TYPE up gauge
up 1`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*counts{
		"a": {outcomes: map[string]float64{"success": 3, "recovered": 2}, attempts: 7, retries: map[string]float64{"status": 2}},
		"b": {outcomes: map[string]float64{}, attempts: 1, retries: map[string]float64{}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if n := got["a"].requests(); n != 5 {
		t.Errorf("%v requests, want 5", n)
	}
	if _, err := parseCounts("{"); err == nil {
		t.Error("no error for what is not a response of /metrics")
	}
}
