package request

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Without a fallback, the upstream itself says that an account is used up. With one, requests that
// would learn nothing but that are not sent.

// AccountLeft returns how much longer requests of this one's account are not sent to the upstream of r;
// 0 if this one may be. It is the route, or one of its fallbacks.
func (cr *Request) AccountLeft(r *settings.RouteState, now clock.Instant) time.Duration {
	if !cr.Process.Accounts.Any() {
		return 0
	}
	return cr.Process.Accounts.Left(r.AccountKey(cr.HTTP), cr.Process.Clock.Since(now))
}

// AccountUsedUp leaves the account at the upstream that responded out, until the reset that the response
// states, if it does. a is the result of the attempt.
func (cr *Request) AccountUsedUp(res *policy.Result) {
	reset := time.Duration(0)
	if res.HasRetryAfter {
		reset = res.RetryAfter
	}
	cr.Process.Accounts.UsedUp(cr.Dest.AccountKey(cr.HTTP), cr.Process.Clock.Since(cr.Time.Clock), reset)
}

// AccountWorks notes that the upstream served the account.
func (cr *Request) AccountWorks() {
	if cr.Process.Accounts.Any() {
		cr.Process.Accounts.Works(cr.Dest.AccountKey(cr.HTTP))
	}
}
