package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
)

// If a route has a fallback, every failed response is searched for signs that its account is used up or
// refused, whatever its status: another account can serve the request. The requests after it are not
// sent there; see package account.

// account looks for the signs in one response.
type account struct {
	at       *attempts
	buffered *bufferedResponse // may have the response; nil: the running attempt has it
}

// judge looks for the signs in a response that is not retried, and sets d if there are any. The upstream
// did not do the work then, so the fallback may get any request.
func (c account) judge(res *policy.Result, d *policy.Decision) {
	r := c.at.Request
	if len(r.Route.Fallbacks) == 0 || d.Retry || res.Cause != policy.CauseStatus || r.GRPC {
		return
	}
	if c.isUsedUp(res) {
		*d = policy.Decision{Class: policy.Rejected, Why: policy.ReasonQuotaExhausted}
	}
}

// isUsedUp reports whether the account at the upstream that responded cannot serve the request, and
// remembers whether it can serve others. a is the result of the attempt.
func (c account) isUsedUp(res *policy.Result) bool {
	r, to := c.at.Request, c.at.Dest
	if res.Status < 400 {
		r.AccountWorks()
		return false
	}
	v := c.verdict(errorList(to))
	isUsedUp := v.UsedUp && !(v.Guessed && res.HasRetryAfter)
	switch {
	case v.HasWait && !v.Guessed && (!res.HasRetryAfter || v.Wait > res.RetryAfter):
		res.RetryAfter, res.HasRetryAfter = v.Wait, true
	case v.Renewed > 0 && !res.HasRetryAfter:
		res.RetryAfter, res.HasRetryAfter = v.Renewed, true
	}
	switch {
	case isUsedUp:
	case to.OwnsAccount() && isRefusal(res.Status) && c.verdict(apierror.Credentials()).UsedUp:
		// The client's own credential says nothing about the account of others.
	case to.ModelAPI && res.Status == 402: // RFC 9110 section 15.5.3 leaves it open; these APIs mean this
		if c.verdict(apierror.Smaller()).UsedUp {
			return true
		}
	case to.ModelAPI && to.OwnsAccount() && res.Status == 401:
		if c.verdict(apierror.Permission()).UsedUp { // it is about what one client asked for
			return true
		}
	default:
		return false
	}
	r.AccountUsedUp(res)
	return true
}

// isRefusal reports whether a response with this status may refuse a credential. Google and Anthropic
// send 400 for some.
func isRefusal(status int) bool { return status == 400 || status == 401 || status == 403 }

// verdict reads the error in the response.
func (c account) verdict(list *apierror.List) apierror.Verdict {
	if c.buffered != nil && c.buffered.full && c.buffered.keptOf(c.at.Attempts()) {
		return c.buffered.errorVerdict(list, &c.at.stream)
	}
	att := c.at.running()
	if c.at.stream.failed {
		return c.at.stream.errorIn(list, att.Response(), att.Body().Held())
	}
	c.at.peekError()
	return bodyVerdict(list, att.Response(), att.Body().Held())
}

// peekError reads the beginning of the body of a failed response. The relay begins with it. It waits no
// longer than bodyWait in all.
func (at *attempts) peekError() {
	b := at.running().Body()
	if len(b.Held()) > 0 || b.Ended() || !b.HasRoom() || !isErrorText(at.running().Response()) {
		return
	}
	if b.Exceeds(at.Route.ResponseBufferBytes) {
		return // it could not be kept while a fallback is asked
	}
	until := at.Time.Now().Add(bodyWait)
	for len(b.Held()) < apierror.MaxBytes {
		if _, err := b.ReadAhead(until); err != nil {
			break // the relay meets whatever ended it, usually the end of the body
		}
	}
	at.Time.Tick()
}
