package metrics

import "testing"

func TestEndpointsAreShown(t *testing.T) {
	m := New(Options{})
	m.Watch(func() Snapshot {
		return Snapshot{Upstreams: []Upstream{{
			Name: "u", Endpoints: [NumEndpointStates]int{EndpointUsed: 11, EndpointEjected: 2, EndpointUnhealthy: 4, EndpointDraining: 3},
			EachEndpoint: []Endpoint{{Name: "10.0.0.1:80", Requests: 1, Attempts: 2, Failures: 3}, {Name: "10.0.0.2:80", Attempts: 9, Ejected: true}, {Requests: 5}},
		}}}
	})
	scrape(t, m).want(t, map[string]string{
		`retryproxy_upstream_endpoints{state="used",upstream="u"}`:                        "11",
		`retryproxy_upstream_endpoints{state="ejected",upstream="u"}`:                     "2",
		`retryproxy_upstream_endpoints{state="draining",upstream="u"}`:                    "3",
		`retryproxy_upstream_endpoint_requests{address="10.0.0.1:80",upstream="u"}`:       "1",
		`retryproxy_upstream_endpoint_attempts_total{address="10.0.0.1:80",upstream="u"}`: "2",
		`retryproxy_upstream_endpoint_failures_total{address="10.0.0.1:80",upstream="u"}`: "3",
		`retryproxy_upstream_endpoint_ejected{address="10.0.0.1:80",upstream="u"}`:        "0",
		`retryproxy_upstream_endpoint_ejected{address="10.0.0.2:80",upstream="u"}`:        "1",
		`retryproxy_upstream_endpoint_requests{address="other",upstream="u"}`:             "5",
		`retryproxy_upstream_endpoint_ejected{address="other",upstream="u"}`:              "",
	})
}
