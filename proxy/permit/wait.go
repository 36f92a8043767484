package permit

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

// WaitEnd is what ended a wait on a client's connection.
type WaitEnd uint8

const (
	WaitedOut WaitEnd = iota
	Left
	DrainBegan
	Notified
	NoToken // the retry budget had no token in time
)

// Await waits until t on the client's own connection, with its read deadline as the timer. The
// wait ends at once if the client leaves or the process drains. Bytes that arrive during the wait
// belong to the next request and are kept. If w is not nil, its queue ends the wait too, and a
// drain ends it only if endsWait reports true.
func (ad *Admitter) Await(t clock.Instant, w *admission.Waiter) WaitEnd {
	c := ad.r.Conn
	if ad.r.Process.Waiting.Add(1) > Crowd {
		c.CompactSpans()
	}
	c.Enter(downstream.PhaseBackoff)
	defer func() {
		ad.r.Process.Waiting.Add(-1)
		c.Enter(downstream.PhaseBusy)
		c.ReadMoved() // whoever woke this goroutine may have moved the deadline to that value
	}()
	for {
		c.ResetRead(t)
		if w != nil && w.Decision.Load() != admission.Wait {
			return Notified
		}
		if ad.endsWait(w) {
			return DrainBegan
		}
		err := ad.awaitRead(t)
		switch {
		case err != nil && !rawsocket.IsTimeout(err):
			return Left
		case w != nil && w.Decision.Load() != admission.Wait:
			return Notified
		case ad.endsWait(w):
			return DrainBegan
		}
		if !ad.r.Process.Clock.Now().Before(t) {
			return WaitedOut
		}
	}
}

// awaitRead reads what arrives before t. If the buffer is full, it only polls whether the client
// is still there.
func (ad *Admitter) awaitRead(t clock.Instant) error {
	c := ad.r.Conn
	if c.HasRoom() {
		return c.Fill()
	}
	time.Sleep(min(downstream.PollEvery, t.Sub(ad.r.Process.Clock.Now())))
	if c.HungUp() {
		return attempt.ErrClientGone
	}
	return nil
}

// endsWait reports whether a drain ends the wait of w. A nil w waits for something other than a
// queue. A queued request was accepted before the drain. It continues to wait while a permit may
// come in time for a response and its upstream is up. No retry waits during a drain.
func (ad *Admitter) endsWait(w *admission.Waiter) bool {
	s := ad.r.Process
	if !s.Draining.Load() {
		return false
	}
	if w == nil || ad.r.Retries > 0 || ad.r.Route.UpstreamState.Admission.AdmitsOnlyProbes() {
		return true
	}
	end := time.Duration(s.WaitsEnd.Load())
	return w.ExpectedAt > end || s.Clock.Elapsed() >= end
}
