package settings

import "github.com/retryproxy/retryproxy/policy"

// Faults are a policy.Faults.
type Faults struct{ faults *policy.Faults }

// Faults is what is made up; nil for nothing.
func (f Faults) Faults() *policy.Faults { return f.faults }

// UnmarshalText reads what policy.ParseFaults reads.
func (f *Faults) UnmarshalText(text []byte) error {
	faults, err := policy.ParseFaults(string(text))
	f.faults = faults
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (f Faults) MarshalText() ([]byte, error) { return []byte(f.faults.String()), nil }

// faults are always warned of, so that every start, reload and check names
// them with the route. Those that a route has from the global setting are told
// with the default route's.
func (c *checker) faults() {
	if c.r.Fault.faults == nil || c.r != &c.s.Default && !c.own("FAULT") {
		return
	}
	which := "on route " + c.r.Name
	if c.r == &c.s.Default {
		which += " and on every route without a setting of its own"
	}
	c.warnf("FAULT", c.r.Fault.faults.String(), "faults are made up for attempts %s; this is for trials, not for traffic that matters", which)
}
