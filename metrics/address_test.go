package metrics

import "testing"

// Two upstreams of one name may have addresses in common.
func TestAddressesAreShownAndAddedUp(t *testing.T) {
	m := New(Options{})
	first := []Address{{Name: "10.0.0.1:80", Requests: 1, Attempts: 2, Failures: 3}, {Name: "10.0.0.2:80", Attempts: 9, Ejected: true}}
	m.Watch(func() Snapshot {
		return Snapshot{Upstreams: []Upstream{
			{Name: "u", Addresses: [NumAddressStates]int{AddressUsed: 1, AddressEjected: 2, AddressDraining: 3}, Each: first},
			{Name: "u", Addresses: [NumAddressStates]int{AddressUsed: 10}, Each: []Address{{Name: "10.0.0.1:80", Requests: 10, Attempts: 20, Failures: 30}, {Requests: 5}}},
		}}
	})
	for range 2 { // the second scrape finds the given slice unchanged
		scrape(t, m).want(t, map[string]string{
			`retryproxy_upstream_addresses{state="used",upstream="u"}`:                       "11",
			`retryproxy_upstream_addresses{state="ejected",upstream="u"}`:                    "2",
			`retryproxy_upstream_addresses{state="draining",upstream="u"}`:                   "3",
			`retryproxy_upstream_address_requests{address="10.0.0.1:80",upstream="u"}`:       "11",
			`retryproxy_upstream_address_attempts_total{address="10.0.0.1:80",upstream="u"}`: "22",
			`retryproxy_upstream_address_failures_total{address="10.0.0.1:80",upstream="u"}`: "33",
			`retryproxy_upstream_address_ejected{address="10.0.0.1:80",upstream="u"}`:        "0",
			`retryproxy_upstream_address_ejected{address="10.0.0.2:80",upstream="u"}`:        "1",
			`retryproxy_upstream_address_requests{address="other",upstream="u"}`:             "5",
			`retryproxy_upstream_address_ejected{address="other",upstream="u"}`:              "",
		})
	}
}
