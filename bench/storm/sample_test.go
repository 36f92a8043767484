package main

import (
	"maps"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func TestValuesAreAddedUp(t *testing.T) {
	const text = `# HELP retryproxy_breaker_state 1 for the state
# TYPE retryproxy_breaker_state gauge
retryproxy_breaker_state{state="closed",upstream="http://a"} 1
retryproxy_breaker_state{state="open",upstream="http://a"} 0
retryproxy_concurrency_limit{upstream="http://a"} +Inf
retryproxy_queued_requests{upstream="http://a"} 12
retryproxy_outcomes_total{outcome="success",route="default"} 1.5e+03
retryproxy_retry_buffer_bytes 7
go_goroutines 9
`
	m, err := rig.ReadSeries(text)
	if err != nil {
		t.Fatal(err)
	}
	one := sample{Values: map[string]float64{"queued_requests": 1}}
	one.add(m)
	sums := one.Values
	want := map[string]float64{"breaker_state/closed": 1, "queued_requests": 13, "outcomes_total/success": 1500}
	if !maps.Equal(sums, want) {
		t.Errorf("got  %v\nwant %v", sums, want)
	}
}
