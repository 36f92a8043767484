package proxy

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// observed is the route as it runs: one with Observe has nothing that holds a
// request up, turns it away, retries it or changes its response. See
// docs/decisions/0008-observe-and-advise.md.
func observed(r *Route) *Route {
	if !r.DryRun {
		return r
	}
	o := *r
	o.Guard = policy.GuardOptions{NoBreaker: true, ConcurrencyLimit: policy.ConcurrencyLimitOff}
	o.Probe, o.RateLimitPause, o.RateLimit, o.ClientThrottling, o.Fallback = Probe{}, RateLimitPause{}, RateLimit{}, false, nil
	o.HedgeAfter = policy.HedgeAfter{}
	return &o
}

// observe counts the retry that d would make, once per request, and makes none.
// Without a retry in d, or where something else speaks against it, the reason
// stays.
func (x *exchange) observe(a *policy.Attempt, d policy.Decision) policy.Decision {
	why := policy.ReasonDryRun
	if !x.wouldRetry {
		if !d.Retry {
			return d
		}
		why = x.wouldNot(a)
	}
	if why == policy.ReasonDryRun && !x.wouldRetry {
		x.wouldRetry = true
		x.observer.WouldRetry(d.Why)
	}
	return policy.Decision{Class: d.Class, Why: why}
}

// wouldNot is what would speak against the retry beyond what was asked already;
// ReasonObserved when nothing does. It holds nothing to find out, so a response
// without a length passes for one that could be held.
func (x *exchange) wouldNot(a *policy.Attempt) policy.Reason {
	f := x.respBody.framing
	if a.Cause == policy.CauseStatus && f.Kind == http1.BodyLength && f.Length > x.route.ResponseBufferBytes {
		return policy.ReasonResponseTooLarge
	}
	if b := x.route.budget(); b != nil && !b.TryRetry(x.set.server.since(x.clock)) {
		return policy.ReasonBudgetExhausted
	}
	return policy.ReasonDryRun
}
