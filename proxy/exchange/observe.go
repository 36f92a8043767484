package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// observe counts the retry that d would make, once per request, and makes none. If d has no retry,
// or something else forbids it, the reason stays.
func (a *admitter) observe(res *policy.Attempt, d policy.Decision) policy.Decision {
	why := policy.ReasonDryRun
	if !a.report.WouldRetry {
		if !d.Retry {
			return d
		}
		why = a.wouldNot(res)
	}
	if why == policy.ReasonDryRun && !a.report.WouldRetry {
		a.report.WouldRetry = true
		a.report.Observer.WouldRetry(d.Why)
	}
	return policy.Decision{Class: d.Class, Why: why}
}

// wouldNot returns what else would forbid the retry, or ReasonDryRun if nothing would. It buffers
// nothing to find out, so a response without a length counts as one that fits.
func (a *admitter) wouldNot(res *policy.Attempt) policy.Reason {
	f := a.att.Body.Framing
	if res.Cause == policy.CauseStatus && f.Kind == http1.BodyLength && f.Length > a.r.Route.ResponseBufferBytes {
		return policy.ReasonResponseTooLarge
	}
	if b := a.r.Route.RetryBudget(); b != nil && !b.TryRetry(a.r.Process.Clock.Since(a.r.Clock)) {
		return policy.ReasonBudgetExhausted
	}
	return policy.ReasonDryRun
}
