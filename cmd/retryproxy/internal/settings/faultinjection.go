package settings

import "github.com/retryproxy/retryproxy/policy"

// FaultInjection are a policy.Faults.
type FaultInjection struct{ injector *policy.FaultInjector }

// Injector is what is made up; nil for nothing.
func (f FaultInjection) Injector() *policy.FaultInjector { return f.injector }

// UnmarshalText reads what policy.ParseFaults reads.
func (f *FaultInjection) UnmarshalText(text []byte) error {
	faults, err := policy.ParseFaultInjection(string(text))
	f.injector = faults
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (f FaultInjection) MarshalText() ([]byte, error) { return []byte(f.injector.String()), nil }

// faultInjection are always warned of, so that every start, reload and check names
// them with the route. Those that a route has from the global setting are told
// with the default route's.
func (c *checker) faultInjection() {
	if c.r.FaultInjection.injector == nil || c.r != &c.s.Default && !c.own("FAULT_INJECTION") {
		return
	}
	which := "on route " + c.r.Name
	if c.r == &c.s.Default {
		which += " and on every route without a setting of its own"
	}
	c.warnf("FAULT_INJECTION", c.r.FaultInjection.injector.String(), "faults are injected for attempts %s; this is for trials, not for traffic that matters", which)
}
