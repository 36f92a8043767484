package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// EndpointState is the state of an address of an upstream.
type EndpointState uint8

// The states, a closed set.
const (
	EndpointUsed      EndpointState = iota // requests may be sent to it
	EndpointEjected                        // ejected after failures
	EndpointUnhealthy                      // its health checks fail
	EndpointDraining                       // no longer in the DNS response, but with connections

	NumEndpointStates = iota // number of states
)

var endpointStates = [NumEndpointStates]string{"used", "ejected", "unhealthy", "draining"}

// Endpoint is one of several addresses of an upstream, or the sum of those not exported by
// name.
type Endpoint struct {
	Name      string // "" for the sum, which is exported as other
	Requests  int    // in flight
	Attempts  uint64
	Failures  uint64
	Ejected   bool
	Unhealthy bool
}

func (u *Upstream) collectEndpoints(ch chan<- prometheus.Metric) {
	for s, n := range u.Endpoints {
		upstreamEndpoints.emit(ch, float64(n), u.Name, endpointStates[s])
	}
	for _, a := range u.EachEndpoint {
		name := valid(a.Name)
		if name == "" {
			name = "other"
		}
		endpointRequests.emit(ch, float64(a.Requests), u.Name, name)
		endpointAttemptsTotal.emit(ch, float64(a.Attempts), u.Name, name)
		endpointFailuresTotal.emit(ch, float64(a.Failures), u.Name, name)
		if a.Name != "" {
			endpointEjected.emit(ch, oneIf(a.Ejected), u.Name, name)
			endpointUnhealthy.emit(ch, oneIf(a.Unhealthy), u.Name, name)
		}
	}
}

// addEndpoints adds the endpoints of o, merging those with the same name.
func (u *Upstream) addEndpoints(o *Upstream) {
	for s, n := range o.Endpoints {
		u.Endpoints[s] += n
	}
	u.EachEndpoint = slices.Clone(u.EachEndpoint) // the caller's slice must not change
	for _, a := range o.EachEndpoint {
		i := slices.IndexFunc(u.EachEndpoint, func(b Endpoint) bool { return a.Name == b.Name })
		if i < 0 {
			u.EachEndpoint = append(u.EachEndpoint, a)
			continue
		}
		b := &u.EachEndpoint[i]
		b.Requests += a.Requests
		b.Attempts += a.Attempts
		b.Failures += a.Failures
		b.Ejected = b.Ejected || a.Ejected
		b.Unhealthy = b.Unhealthy || a.Unhealthy
	}
}
