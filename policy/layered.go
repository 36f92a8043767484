package policy

import "fmt"

// LayeredRetries says how many retries are left for a request that is itself a retry
// by a proxy before us. Without such a rule three layers of three retries each
// send 64 attempts to a dead upstream.
type LayeredRetries uint8

// The choices of Nested, a closed set. The zero value is the default.
const (
	LayeredHalve LayeredRetries = iota // half of the retries, rounded down
	LayeredAllow                       // as for any request
	LayeredDeny                        // none
	numLayered
)

var layeredTexts = [numLayered]text{
	LayeredHalve: {"halve", "A request that is itself a retry gets half of the retries, rounded down."},
	LayeredAllow: {"allow", "A request that is itself a retry gets as many retries as any other."},
	LayeredDeny:  {"deny", "A request that is itself a retry gets no retries."},
}

// MaxRetries is how many retries a request that is itself a retry may have where
// any other has max. It is never negative and never above max.
func (n LayeredRetries) MaxRetries(max int) int {
	switch {
	case max <= 0 || n == LayeredDeny:
		return 0
	case n == LayeredAllow:
		return max
	}
	return max / 2
}

// String is the name in the configuration.
func (n LayeredRetries) String() string { return lookup(layeredTexts[:], int(n)).label }

// Explain is one sentence for a reader of the settings.
func (n LayeredRetries) Explain() string { return lookup(layeredTexts[:], int(n)).explain }

// ParseLayeredRetries reads "halve", "allow" or "deny".
func ParseLayeredRetries(s string) (LayeredRetries, error) {
	for n := LayeredHalve; n < numLayered; n++ {
		if layeredTexts[n].label == s {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%q is none of halve, allow, deny", s)
}
