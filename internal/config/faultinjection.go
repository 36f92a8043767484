package config

import "github.com/retryproxy/retryproxy/policy"

// FaultInjection is the setting for a policy.FaultInjector.
type FaultInjection struct{ injector *policy.FaultInjector }

// Injector returns the injector; nil for none.
func (f FaultInjection) Injector() *policy.FaultInjector { return f.injector }

// UnmarshalText parses text with policy.ParseFaultInjection.
func (f *FaultInjection) UnmarshalText(text []byte) error {
	faults, err := policy.ParseFaultInjection(string(text))
	f.injector = faults
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (f FaultInjection) MarshalText() ([]byte, error) { return []byte(f.injector.String()), nil }

// faultInjection always warns about injected faults, so that every start, reload and check
// names them with the route. A global setting is reported once, for the default route.
func (c *checker) faultInjection() {
	if c.r.FaultInjection.injector == nil || c.r != &c.s.Default && !c.own("FAULT_INJECTION") {
		return
	}
	which := "on route " + c.r.Name
	if c.r == &c.s.Default {
		which += " and on every route without a setting of its own"
	}
	c.warnf("FAULT_INJECTION", c.r.FaultInjection.injector.String(), "injects faults into attempts %s; use it for tests only", which)
}
