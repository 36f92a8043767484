package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// EndpointState is what an address of an upstream is used for.
type EndpointState uint8

// The states, a closed set.
const (
	EndpointUsed     EndpointState = iota // requests go to it, or may
	EndpointEjected                       // ejected for its failures
	EndpointDraining                      // gone from the response for the name, but not without connections

	NumEndpointStates = iota // number of states
)

var endpointStates = [NumEndpointStates]string{"used", "ejected", "draining"}

// Endpoint is one of several of an upstream, or the sum of those not shown by name.
type Endpoint struct {
	Name     string // "" for the sum, which is shown as other
	Requests int    // in hand
	Attempts uint64
	Failures uint64
	Ejected  bool
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
		}
	}
}

// addEndpoints adds up those of one name.
func (u *Upstream) addEndpoints(o *Upstream) {
	for s, n := range o.Endpoints {
		u.Endpoints[s] += n
	}
	u.EachEndpoint = slices.Clone(u.EachEndpoint) // the given ones are not ours to change
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
	}
}
