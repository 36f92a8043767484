package policy

import "fmt"

// Nested says how many retries are left for a request that is itself a repeat
// by a proxy before us. Without such a rule three layers of three retries each
// send 64 attempts to a dead upstream.
type Nested uint8

// The choices of Nested, a closed set. The zero value is the default.
const (
	NestedHalve Nested = iota // half of the retries, rounded down
	NestedAllow               // as for any request
	NestedDeny                // none
	numNested
)

var nestedTexts = [numNested]text{
	NestedHalve: {"halve", "A request that is itself a repeat gets half of the retries, rounded down."},
	NestedAllow: {"allow", "A request that is itself a repeat gets as many retries as any other."},
	NestedDeny:  {"deny", "A request that is itself a repeat gets no retries."},
}

// Limit is how many retries a request that is itself a repeat may have where
// any other has max. It is never negative and never above max.
func (n Nested) Limit(max int) int {
	switch {
	case max <= 0 || n == NestedDeny:
		return 0
	case n == NestedAllow:
		return max
	}
	return max / 2
}

// String is the name in the configuration.
func (n Nested) String() string { return lookup(nestedTexts[:], int(n)).label }

// Explain is one sentence for a reader of the settings.
func (n Nested) Explain() string { return lookup(nestedTexts[:], int(n)).explain }

// ParseNested reads "halve", "allow" or "deny".
func ParseNested(s string) (Nested, error) {
	for n := NestedHalve; n < numNested; n++ {
		if nestedTexts[n].label == s {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%q is none of halve, allow, deny", s)
}
