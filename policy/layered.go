package policy

import (
	"fmt"

	"github.com/retryproxy/retryproxy/policy/internal/labels"
)

// LayeredRetries is how many retries remain for a request that is itself a retry by a proxy
// before us. Without this rule, three layers of three retries each send 64 attempts to a
// failing upstream.
type LayeredRetries uint8

// The choices of LayeredRetries, a closed set. The zero value is the default.
const (
	LayeredHalve LayeredRetries = iota // half of the retries, rounded down
	LayeredAllow                       // as for any request
	LayeredDeny                        // none
	numLayered
)

var layeredTexts = [numLayered]labels.Text{
	LayeredHalve: {Label: "halve", Explain: "A request that is itself a retry gets half of the retries, rounded down."},
	LayeredAllow: {Label: "allow", Explain: "A request that is itself a retry gets as many retries as any other."},
	LayeredDeny:  {Label: "deny", Explain: "A request that is itself a retry gets no retries."},
}

// MaxRetries returns the number of retries for a request that is itself a retry, if any
// other request has max. The result is never negative and never above max.
func (n LayeredRetries) MaxRetries(max int) int {
	switch {
	case max <= 0 || n == LayeredDeny:
		return 0
	case n == LayeredAllow:
		return max
	}
	return max / 2
}

// String returns the name in the configuration.
func (n LayeredRetries) String() string { return labels.Lookup(layeredTexts[:], int(n)).Label }

// Explain returns one sentence for a reader of the settings.
func (n LayeredRetries) Explain() string { return labels.Lookup(layeredTexts[:], int(n)).Explain }

// ParseLayeredRetries reads "halve", "allow" or "deny".
func ParseLayeredRetries(s string) (LayeredRetries, error) {
	for n := LayeredHalve; n < numLayered; n++ {
		if layeredTexts[n].Label == s {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%q is not halve, allow or deny", s)
}
