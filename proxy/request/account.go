package request

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Without a fallback, the upstream itself says that an account is used up. With one, requests that
// would learn nothing but that are not sent.

// AccountLeft returns how much longer requests of this one's account are not sent to the upstream of to;
// 0 if this one may be. It is the route, or one of its fallbacks.
func (r *Request) AccountLeft(to *settings.RouteState, now clock.Instant) time.Duration {
	if !r.Process.Accounts.Any() {
		return 0
	}
	return r.Process.Accounts.Left(to.AccountKey(r.HTTP), r.Process.Clock.Since(now))
}

// AccountUsedUp leaves the account at the upstream that responded out, until the reset that the response
// states, if it does. a is the result of the attempt.
func (r *Request) AccountUsedUp(res *policy.Result) {
	reset := time.Duration(0)
	if res.HasRetryAfter {
		reset = res.RetryAfter
	}
	r.Process.Accounts.UsedUp(r.Dest.AccountKey(r.HTTP), r.Process.Clock.Since(r.Time.Clock), reset)
}

// AccountWorks notes that the upstream served the account.
func (r *Request) AccountWorks() {
	if r.Process.Accounts.Any() {
		r.Process.Accounts.Works(r.Dest.AccountKey(r.HTTP))
	}
}
