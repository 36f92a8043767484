package permit

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// MaxDescriptorWait returns how long the attempt may wait for a descriptor.
func (ad *Admitter) MaxDescriptorWait() time.Duration {
	if ad.r.Retries > 0 {
		return ad.r.Time.MaxWait(ad.r.Time.Clock)
	}
	return ad.r.Time.MaxRequestWait(ad.r.Time.Clock)
}

// AwaitDescriptor waits before another look for a descriptor. It reports false if the time is over,
// the client left, a drain began, or the queue no longer admits the attempt. The permit is returned
// meanwhile, so that the upstream's silence means nothing.
func (ad *Admitter) AwaitDescriptor(a *attempt.Attempt, wait time.Duration, until clock.Instant) bool {
	ad.returnUnused(a)
	ad.NoAttempt = policy.ReasonNoDescriptors
	if !ad.r.Time.Clock.Before(until) {
		return false
	}
	ad.waiter.ExpectedAt = 0
	ad.waiter.Decision.Store(admission.Wait)
	end := ad.Await(request.Earliest(until, ad.r.Time.Clock.Add(wait)), &ad.waiter)
	switch end {
	case Left:
		ad.r.ClientEnd.Store(request.ClientGone)
		return false
	case DrainBegan:
		ad.NoAttempt = policy.ReasonDraining
		return false
	}
	switch ad.Acquire(a, ad.r.Time.Tick()) {
	case Admitted:
		ad.NoAttempt = policy.ReasonNone
		a.Began = ad.r.Time.Clock
		return true
	case ClientLeft:
		ad.r.ClientEnd.Store(request.ClientGone)
	case DrainEnded:
		ad.NoAttempt = policy.ReasonDraining
	}
	return false
}
