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
func (cr *Request) RateLimitKey(s *admission.RateLimits) uint64 {
	return s.KeyOf(cr.HTTP, cr.Tokens.Model())
}

// NextUse returns what the next attempt takes of a rate limit that counts tokens.
func (cr *Request) NextUse() *admission.Use { return cr.NeedTokens().Expect() }

// IsUnfinished reports whether the client has not sent all of the request.
func (cr *Request) IsUnfinished() bool { return !cr.Body.IsComplete() }

// MaxWait is like Time.MaxWait.
func (cr *Request) MaxWait(now clock.Instant) time.Duration { return cr.Time.MaxWait(now) }

// AwaitPause waits until t and counts the request as paused, even if the wait ends in a panic.
func (cr *Request) AwaitPause(t clock.Instant) admission.WaitEnd {
	cr.Process.Paused.Add(1)
	defer cr.Process.Paused.Add(-1)
	return cr.Await(t, nil)
}

// Await waits until t on the client's own connection, with its read deadline as the timer. The
// wait ends at once if the client leaves or the process drains. Bytes that arrive during the wait
// belong to the next request and are kept. If w is not nil, its queue ends the wait too, and a
// drain ends it only if DrainEnds reports true.
func (cr *Request) Await(t clock.Instant, w *admission.Waiter) admission.WaitEnd {
	c := cr.Conn
	if cr.Process.Waiting.Add(1) > Crowd {
		c.CompactSpans()
	}
	c.Enter(downstream.PhaseBackoff)
	defer func() {
		cr.Process.Waiting.Add(-1)
		c.Enter(downstream.PhaseBusy)
		c.ReadMoved() // whoever woke this goroutine may have moved the deadline to that value
	}()
	for {
		c.ResetRead(t)
		if w != nil && w.Decision.Load() != admission.Wait {
			return admission.Notified
		}
		if cr.DrainEnds(w) {
			return admission.DrainBegan
		}
		err := cr.awaitRead(t)
		switch {
		case err != nil && !rawsocket.IsTimeout(err):
			return admission.ClientLeft
		case w != nil && w.Decision.Load() != admission.Wait:
			return admission.Notified
		case cr.DrainEnds(w):
			return admission.DrainBegan
		}
		if !cr.Time.Now().Before(t) {
			return admission.WaitedOut
		}
	}
}

// awaitRead reads what arrives before t. If the buffer is full, it only polls whether the client
// is still there.
func (cr *Request) awaitRead(t clock.Instant) error {
	c := cr.Conn
	if c.HasRoom() {
		return c.Fill()
	}
	time.Sleep(min(downstream.PollEvery, t.Sub(cr.Process.Clock.Now())))
	if c.HungUp() {
		return attempt.ErrClientGone
	}
	return nil
}

// DrainEnds reports whether a drain ends the wait of w. A nil w waits for something other than a
// queue. A queued request was accepted before the drain. It continues to wait while a permit may
// come in time for a response and its upstream is up. No retry waits during a drain.
func (cr *Request) DrainEnds(w *admission.Waiter) bool {
	s := cr.Process
	if !cr.IsDraining() {
		return false
	}
	if w == nil || cr.retries > 0 || cr.Route.UpstreamState.Admission.AdmitsOnlyProbes() {
		return true
	}
	end := time.Duration(s.waitsEnd.Load())
	return w.ExpectedAt > end || s.Clock.Elapsed() >= end
}
