package config

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// The methods of this file return the route's rules as the types of the packages that use them.

// Backoffs returns the route's backoff and the one after a 429 without Retry-After. The
// error names the parameter that is out of range.
func (r *Route) Backoffs() (usual, throttled backoff.Strategy, err error) {
	o := r.backoffOptions()
	if usual, err = backoff.New(r.Backoff.name, o); err != nil {
		return nil, nil, err
	}
	throttled, err = backoff.NewThrottled(r.Backoff.name, o, r.BackoffThrottledBase)
	return usual, throttled, err
}

// Policy returns the route's policy.
func (r *Route) Policy() (policy.Policy, error) {
	usual, throttled, err := r.Backoffs()
	return policy.Policy{
		RetryOn: r.RetryOn, MaxRetries: r.MaxRetries, Methods: r.RetryMethods.MethodSet,
		Unsafe: r.RetryMethods.Any(), Rejected: r.RetryRejected, Backoff: usual, Throttled: throttled,
	}, err
}

// Budget returns the route's budget, and false if it has none.
func (r *Route) Budget() (config budget.Config, ok bool) {
	return budget.Config{Ratio: r.BudgetRatio.Value(), MinPerSecond: r.BudgetMinPerSecond, Burst: r.BudgetBurst}, !r.BudgetRatio.Off()
}

// Guard returns the options of the route's breaker.Guard.
func (r *Route) Guard() breaker.Options {
	return breaker.Options{
		NoBreaker: r.Breaker == "off", ConcurrencyLimit: r.ConcurrencyLimit.Mode, FixedLimit: r.ConcurrencyLimit.Fixed,
		On: r.BreakerOn.failures(), After: int(r.BreakerAfter), Backoff: r.BreakerBackoff.strategy,
	}
}
