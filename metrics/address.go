package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// AddressState is what an address of an upstream is used for.
type AddressState uint8

// The states, a closed set.
const (
	AddressUsed     AddressState = iota // requests go to it, or may
	AddressEjected                      // left out for its failures
	AddressDraining                     // gone from the answer for the name, but not without connections

	NumAddressStates = iota // number of states
)

var addressStates = [NumAddressStates]string{"used", "ejected", "draining"}

// Address is one of several of an upstream, or the sum of those not shown by name.
type Address struct {
	Name     string // "" for the sum, which is shown as other
	Requests int    // in hand
	Attempts uint64
	Failures uint64
	Ejected  bool
}

func (u *Upstream) collectAddresses(ch chan<- prometheus.Metric) {
	for s, n := range u.Addresses {
		upstreamAddresses.emit(ch, float64(n), u.Name, addressStates[s])
	}
	for _, a := range u.Each {
		name := valid(a.Name)
		if name == "" {
			name = "other"
		}
		addressRequests.emit(ch, float64(a.Requests), u.Name, name)
		addressAttemptsTotal.emit(ch, float64(a.Attempts), u.Name, name)
		addressFailuresTotal.emit(ch, float64(a.Failures), u.Name, name)
		if a.Name != "" {
			addressEjected.emit(ch, oneIf(a.Ejected), u.Name, name)
		}
	}
}

// addAddresses adds up those of one name.
func (u *Upstream) addAddresses(o *Upstream) {
	for s, n := range o.Addresses {
		u.Addresses[s] += n
	}
	u.Each = slices.Clone(u.Each) // the given ones are not ours to change
	for _, a := range o.Each {
		i := slices.IndexFunc(u.Each, func(b Address) bool { return a.Name == b.Name })
		if i < 0 {
			u.Each = append(u.Each, a)
			continue
		}
		b := &u.Each[i]
		b.Requests += a.Requests
		b.Attempts += a.Attempts
		b.Failures += a.Failures
		b.Ejected = b.Ejected || a.Ejected
	}
}
