package settings

import (
	"errors"
	"fmt"
	"strings"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// The types of this file give the project's own parsers the form that the
// environment library wants.

// Upstream is where requests are sent. The zero value means that nothing was
// said. Its TLS is as upstream.ParseTarget leaves it: files are loaded later.
type Upstream struct{ target upstream.Target }

// UnmarshalText reads what upstream.ParseTarget reads.
func (u *Upstream) UnmarshalText(text []byte) error {
	target, err := upstream.ParseTarget(string(text))
	if err != nil {
		return reason(err)
	}
	u.target = target
	return nil
}

// reason takes from an error what it retries of the setting (upstream "...": ),
// since the message that it ends up in names variable and value already.
func reason(err error) error {
	if _, detail, found := strings.Cut(err.Error(), "\": "); found {
		return errors.New(detail)
	}
	return err
}

// Set reports that an upstream was given.
func (u Upstream) Set() bool { return u.target.Address != "" }

// TLS reports an https upstream.
func (u Upstream) TLS() bool { return u.target.TLS != nil }

// Loopback reports that the upstream is on this machine by its name.
func (u Upstream) Loopback() bool { return u.Set() && u.target.Local() }

// Target is what package upstream connects to.
func (u Upstream) Target() upstream.Target { return u.target }

// String is the upstream as a user would write it; "" for the zero value.
func (u Upstream) String() string {
	if !u.Set() {
		return ""
	}
	return u.target.String()
}

// MarshalText is String.
func (u Upstream) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// RetryOn is a policy.RetryOn.
type RetryOn struct{ policy.RetryOn }

// UnmarshalText reads what policy.ParseRetryOn reads.
func (r *RetryOn) UnmarshalText(text []byte) error {
	on, err := policy.ParseRetryOn(string(text))
	r.RetryOn = on
	return err
}

// MarshalText is the inverse of UnmarshalText, in the shortest form.
func (r RetryOn) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MethodSet is a policy.MethodSet.
type MethodSet struct{ policy.MethodSet }

// UnmarshalText reads what policy.ParseMethods reads.
func (m *MethodSet) UnmarshalText(text []byte) error {
	set, err := policy.ParseMethods(string(text))
	m.MethodSet = set
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (m MethodSet) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Rejected is a policy.StatusSet.
type Rejected struct{ policy.StatusSet }

// UnmarshalText reads what policy.ParseRejected reads.
func (r *Rejected) UnmarshalText(text []byte) error {
	set, err := policy.ParseRejected(string(text))
	r.StatusSet = set
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (r Rejected) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// DeadlineHeaders is a forward.DeadlineSet.
type DeadlineHeaders struct{ forward.DeadlineSet }

// UnmarshalText reads names of fields, or none.
func (d *DeadlineHeaders) UnmarshalText(text []byte) error {
	d.DeadlineSet = 0
	if strings.EqualFold(string(text), "none") {
		return nil
	}
	var errs []error
	for _, name := range splitList(string(text)) {
		before := d.DeadlineSet
		for f := range forward.DeadlineHeader(forward.NumDeadlineHeaders) {
			if strings.EqualFold(name, f.String()) {
				d.DeadlineSet = d.With(f)
			}
		}
		if d.DeadlineSet == before {
			errs = append(errs, fmt.Errorf("%q is none of them, or there twice", name))
		}
	}
	return errors.Join(errs...)
}

// MarshalText is the inverse of UnmarshalText.
func (d DeadlineHeaders) MarshalText() ([]byte, error) {
	var names []string
	for f := range forward.DeadlineHeader(forward.NumDeadlineHeaders) {
		if d.Has(f) {
			names = append(names, f.String())
		}
	}
	if names == nil {
		return []byte("none"), nil
	}
	return []byte(strings.Join(names, ",")), nil
}

// Backoffs builds the route's backoff and the one after a 429 without
// Retry-After. The error says which parameter is out of range.
func (r *Route) Backoffs() (usual, throttled policy.Backoff, err error) {
	o := r.backoffOptions()
	if usual, err = policy.New(r.Backoff, o); err != nil {
		return nil, nil, err
	}
	throttled, err = policy.NewThrottled(r.Backoff, o, r.BackoffThrottledBase)
	return usual, throttled, err
}

func (r *Route) backoffOptions() policy.Options {
	return policy.Options{
		Base: r.BackoffBase, Factor: r.BackoffFactor, Max: r.BackoffMax, Jitter: r.BackoffJitter, Spread: r.BackoffSpread,
		Ratio: r.BackoffRatio, Slots: r.BackoffSlots, Stay: r.BackoffStay, Extra: r.BackoffExtra,
	}
}

// Policy builds the route's policy.
func (r *Route) Policy() (policy.Policy, error) {
	usual, throttled, err := r.Backoffs()
	return policy.Policy{
		RetryOn: r.RetryOn.RetryOn, MaxRetries: r.MaxRetries, Window: r.RetryWindow, Methods: r.RetryMethods.MethodSet,
		Unsafe: r.RetryUnsafe, Rejected: r.RetryRejected.StatusSet, Backoff: usual, Throttled: throttled,
	}, err
}

// LayeredRetriesRule is what becomes of a request that is itself a retry.
func (r *Route) LayeredRetriesRule() (policy.LayeredRetries, error) {
	return policy.ParseLayeredRetries(r.LayeredRetries)
}

// Budget is the route's budget; not ok when it has none.
func (r *Route) Budget() (config policy.BudgetConfig, ok bool) {
	return policy.BudgetConfig{Ratio: r.BudgetRatio.Value(), MinPerSecond: r.BudgetMinPerSecond, Burst: r.BudgetBurst}, !r.BudgetRatio.Off()
}

// Guard is how the route's upstream is guarded.
func (r *Route) Guard() policy.GuardOptions {
	mode, fixed := r.ConcurrencyLimit.Mode()
	return policy.GuardOptions{NoBreaker: r.Breaker == "off", ConcurrencyLimit: mode, FixedLimit: fixed, Backoff: r.BreakerBackoff.backoff, Failing: r.BreakerOn.FailingStatuses}
}

// fillBackoff puts the strategy's own parameters where none were given, so
// that they are seen in the effective settings. What the strategy does not
// use stays 0.
func (r *Route) fillBackoff() {
	info, known := policy.Describe(r.Backoff)
	if !known {
		return
	}
	d := info.Defaults
	if r.BackoffBase == 0 {
		r.BackoffBase = atMost(d.Base, r.BackoffMax)
	}
	orDefault(&r.BackoffFactor, d.Factor)
	orDefault(&r.BackoffJitter, d.Jitter)
	orDefault(&r.BackoffSpread, d.Spread)
	orDefault(&r.BackoffRatio, d.Ratio)
	orDefault(&r.BackoffSlots, d.Slots)
	if r.BackoffMax == 0 && d.Max != 0 {
		r.BackoffMax = max(d.Max, r.BackoffBase)
	}
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
