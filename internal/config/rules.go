package config

import (
	"errors"
	"strings"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/status"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// The types of this file adapt the project's own parsers to the environment library.

// Upstream is where requests are sent. The zero value means that it is not set. Its TLS is
// as returned by upstream.ParseTarget: files are loaded later.
type Upstream struct{ target upstream.Target }

// UnmarshalText parses text with upstream.ParseTarget.
func (u *Upstream) UnmarshalText(text []byte) error {
	target, err := upstream.ParseTarget(string(text))
	if err != nil {
		return reason(err)
	}
	u.target = target
	return nil
}

// reason removes the part of an error that repeats the setting (upstream "...": ), since
// the final message contains variable and value already.
func reason(err error) error {
	if _, detail, found := strings.Cut(err.Error(), "\": "); found {
		return errors.New(detail)
	}
	return err
}

// Set reports whether an upstream was set.
func (u Upstream) Set() bool { return u.target.Address != "" }

// TLS reports whether the upstream uses TLS.
func (u Upstream) TLS() bool { return u.target.TLS != nil }

// Loopback reports whether the upstream is on this machine by its name.
func (u Upstream) Loopback() bool { return u.Set() && u.target.Local() }

// Target returns the target for package upstream.
func (u Upstream) Target() upstream.Target { return u.target }

// String returns the upstream in the syntax of the setting; "" for the zero value.
func (u Upstream) String() string {
	if !u.Set() {
		return ""
	}
	return u.target.String()
}

// MarshalText returns the text of String.
func (u Upstream) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// RetryOn is the setting for a policy.RetryOn.
type RetryOn struct{ policy.RetryOn }

// UnmarshalText parses text with policy.ParseRetryOn.
func (r *RetryOn) UnmarshalText(text []byte) error {
	on, err := policy.ParseRetryOn(string(text))
	r.RetryOn = on
	return err
}

// MarshalText is the inverse of UnmarshalText, in the shortest form.
func (r RetryOn) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// RetryMethods is which methods may be retried after they were sent: a policy.MethodSet, any, or
// any-with-key.
type RetryMethods struct {
	policy.MethodSet        // empty with a word
	word             string // any or any-with-key; "" for a list
}

const (
	anyMethod        = "any"
	anyMethodWithKey = "any-with-key"
)

// Any reports whether requests of every method may be retried, with or without a key.
func (m RetryMethods) Any() bool { return m.word == anyMethod }

// AddKey reports whether requests get an Idempotency-Key, so that all may be retried.
func (m RetryMethods) AddKey() bool { return m.word == anyMethodWithKey }

// UnmarshalText parses one of the words, or a list with policy.ParseMethods.
func (m *RetryMethods) UnmarshalText(text []byte) error {
	if word := strings.ToLower(string(text)); word == anyMethod || word == anyMethodWithKey {
		*m = RetryMethods{word: word}
		return nil
	}
	set, err := policy.ParseMethods(string(text))
	*m = RetryMethods{MethodSet: set}
	return err
}

// String returns the setting as a user would write it.
func (m RetryMethods) String() string {
	if m.word != "" {
		return m.word
	}
	return m.MethodSet.String()
}

// MarshalText is the inverse of UnmarshalText.
func (m RetryMethods) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Rejected is the setting for a status.Set.
type Rejected struct{ status.Set }

// UnmarshalText parses text with status.ParseRejected.
func (r *Rejected) UnmarshalText(text []byte) error {
	set, err := status.ParseRejected(string(text))
	r.Set = set
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (r Rejected) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// ErrorCodes is an apierror.List.
type ErrorCodes struct {
	list *apierror.List
	text string
}

// UnmarshalText parses text with apierror.ParseList.
func (e *ErrorCodes) UnmarshalText(text []byte) error {
	list, err := apierror.ParseList(string(text))
	e.list, e.text = list, string(text)
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (e ErrorCodes) MarshalText() ([]byte, error) { return []byte(e.text), nil }

// Backoffs returns the route's backoff and the one after a 429 without Retry-After. The
// error names the parameter that is out of range.
func (r *Route) Backoffs() (usual, throttled backoff.Strategy, err error) {
	o := r.backoffOptions()
	if usual, err = backoff.New(r.Backoff, o); err != nil {
		return nil, nil, err
	}
	throttled, err = backoff.NewThrottled(r.Backoff, o, r.BackoffThrottledBase)
	return usual, throttled, err
}

func (r *Route) backoffOptions() backoff.Options {
	return backoff.Options{
		Base: r.BackoffBase, Factor: r.BackoffFactor, Max: r.BackoffMax, Jitter: r.BackoffJitter, Spread: r.BackoffSpread,
		Ratio: r.BackoffRatio, Slots: r.BackoffSlots, Stay: r.BackoffStay, Extra: r.BackoffExtra,
	}
}

// Policy returns the route's policy.
func (r *Route) Policy() (policy.Policy, error) {
	usual, throttled, err := r.Backoffs()
	return policy.Policy{
		RetryOn: r.RetryOn.RetryOn, MaxRetries: r.MaxRetries, Methods: r.RetryMethods.MethodSet,
		Unsafe: r.RetryMethods.Any(), Rejected: r.RetryRejected.Set, Backoff: usual, Throttled: throttled,
	}, err
}

// LayeredRetriesRule returns the rule for a request that is itself a retry.
func (r *Route) LayeredRetriesRule() (policy.LayeredRetries, error) {
	return policy.ParseLayeredRetries(r.LayeredRetries)
}

// Budget returns the route's budget, and false if it has none.
func (r *Route) Budget() (config budget.Config, ok bool) {
	return budget.Config{Ratio: r.BudgetRatio.Value(), MinPerSecond: r.BudgetMinPerSecond, Burst: r.BudgetBurst}, !r.BudgetRatio.Off()
}

// Guard returns the options of the route's breaker.Guard.
func (r *Route) Guard() breaker.Options {
	mode, fixed := r.ConcurrencyLimit.Mode()
	return breaker.Options{NoBreaker: r.Breaker == "off", ConcurrencyLimit: mode, FixedLimit: fixed}
}

// fillBackoff sets missing parameters to the strategy's defaults, so that they appear in
// the effective settings. Parameters that the strategy does not use stay 0.
func (r *Route) fillBackoff() {
	info, known := backoff.Describe(r.Backoff)
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
