package request

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// Crowd is how many requests must wait at once before it is worth compacting their memory.
const Crowd = 64

// What follows implements most of admission.Requester.

// RateLimitKey returns the key by which the request shares the rate limit s.
func (r *Request) RateLimitKey(s *admission.RateLimits) uint64 {
	return s.KeyOf(r.HTTP, r.Tokens.Model())
}

// NextUse returns what the next attempt takes of a rate limit that counts tokens.
func (r *Request) NextUse() *admission.Use { return r.NeedTokens().Expect() }

// IsUnfinished reports whether the client has not sent all of the request.
func (r *Request) IsUnfinished() bool { return !r.Body.IsComplete() }

// MaxWait is like Time.MaxWait.
func (r *Request) MaxWait(now clock.Instant) time.Duration { return r.Time.MaxWait(now) }

// AwaitPause waits until t and counts the request as paused, even if the wait ends in a panic.
func (r *Request) AwaitPause(t clock.Instant) admission.WaitEnd {
	r.Process.Paused.Add(1)
	defer r.Process.Paused.Add(-1)
	return r.Await(t, nil)
}

// Await waits until t on the client's own connection, with its read deadline as the timer. The
// wait ends at once if the client leaves or the process drains. Bytes that arrive during the wait
// belong to the next request and are kept. If w is not nil, its queue ends the wait too, and a
// drain ends it only if DrainEnds reports true.
func (r *Request) Await(t clock.Instant, w *admission.Waiter) admission.WaitEnd {
	c := r.Conn
	if r.Process.Waiting.Add(1) > Crowd {
		c.CompactSpans()
	}
	c.Enter(downstream.PhaseBackoff)
	defer func() {
		r.Process.Waiting.Add(-1)
		c.Enter(downstream.PhaseBusy)
		c.ReadMoved() // whoever woke this goroutine may have moved the deadline to that value
	}()
	for {
		c.ResetRead(t)
		if w != nil && w.Decision.Load() != admission.Wait {
			return admission.Notified
		}
		if r.DrainEnds(w) {
			return admission.DrainBegan
		}
		err := r.awaitRead(t)
		switch {
		case err != nil && !rawsocket.IsTimeout(err):
			return admission.ClientLeft
		case w != nil && w.Decision.Load() != admission.Wait:
			return admission.Notified
		case r.DrainEnds(w):
			return admission.DrainBegan
		}
		if !r.Time.Now().Before(t) {
			return admission.WaitedOut
		}
	}
}

// awaitRead reads what arrives before t. If the buffer is full, it only polls whether the client
// is still there.
func (r *Request) awaitRead(t clock.Instant) error {
	c := r.Conn
	if c.HasRoom() {
		return c.Fill()
	}
	time.Sleep(min(downstream.PollEvery, t.Sub(r.Process.Clock.Now())))
	if c.HungUp() {
		return attempt.ErrClientGone
	}
	return nil
}

// DrainEnds reports whether a drain ends the wait of w. A nil w waits for something other than a
// queue. A queued request was accepted before the drain. It continues to wait while a permit may
// come in time for a response and its upstream is up. No retry waits during a drain.
func (r *Request) DrainEnds(w *admission.Waiter) bool {
	s := r.Process
	if !r.IsDraining() {
		return false
	}
	if w == nil || r.retries > 0 || r.Route.UpstreamState.Admission.AdmitsOnlyProbes() {
		return true
	}
	end := time.Duration(s.waitsEnd.Load())
	return w.ExpectedAt > end || s.Clock.Elapsed() >= end
}
