package permit

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
)

// NoteSent tells the Guard if the request of the attempt was sent whole.
func (ad *Admitter) NoteSent(a *attempt.Attempt) {
	if a.Permit.Sending() && a.Progress.Load() == attempt.Sent {
		q := ad.r.Dest.UpstreamState.Admission
		a.Permit = q.Guard.Sent(a.Permit, ad.r.Process.Clock.Since(a.SentAt))
	}
}

// returnUnused returns a permit that was not used.
func (ad *Admitter) returnUnused(a *attempt.Attempt) {
	if permit := a.TakePermit(); permit.Taken() {
		q := ad.r.Dest.UpstreamState.Admission
		q.HandleSignal(q.Guard.Release(permit, ad.r.Process.Clock.Elapsed(), breaker.AttemptEnd{Kind: breaker.Unsent}))
	}
}

// Release returns the permit of the attempt and tells the Guard its result.
func (ad *Admitter) Release(a *attempt.Attempt, res *policy.Attempt) {
	ad.NoteSent(a)
	permit := a.TakePermit()
	if !permit.Taken() {
		return
	}
	q, t := ad.r.Dest.UpstreamState.Admission, ad.r.Process.Clock.Since(ad.r.Time.Clock)
	e := breaker.AttemptEnd{Kind: breaker.Responded, Status: res.JudgedStatus()}
	switch {
	case res.Cause != policy.CauseStatus || e.Status >= 500:
		e = ad.r.AttemptEnd(a, res)
	case q.Guard.WantsKey(t):
		e.Key = ad.r.UrlKey()
	}
	q.HandleSignal(q.Guard.Release(permit, t, e))
}

// AwaitsLateResponse reports whether the connection of the attempt with the permit is still read
// when its client does not wait any more. A request that was not sent whole is never answered.
func (ad *Admitter) AwaitsLateResponse(a *attempt.Attempt, permit breaker.Permit) bool {
	return permit.Probe() && a.SentSome() && a.Up != nil && a.Progress.Load() == attempt.Sent
}

// Abandon keeps the permit of an attempt that was sent and is no longer awaited, because the
// upstream still works on it. The connection of a probe is still read: no pump may use it.
func (ad *Admitter) Abandon(a *attempt.Attempt, kind breaker.EndKind) {
	ad.NoteSent(a)
	permit := a.TakePermit()
	if !permit.Taken() {
		return
	}
	q, t := ad.r.Dest.UpstreamState.Admission, ad.r.Process.Clock.Elapsed()
	if !a.SentSome() {
		q.HandleSignal(q.Guard.Release(permit, t, breaker.AttemptEnd{Kind: breaker.Unsent}))
		return
	}
	listens := ad.AwaitsLateResponse(a, permit)
	e := breaker.AttemptEnd{Kind: kind, Key: ad.r.UrlKey(), Closed: !listens}
	late, signal := q.Guard.Abandon(permit, t, e)
	if listens {
		q.AwaitLateResponse(a.Take(), late)
	}
	q.HandleSignal(signal)
}
