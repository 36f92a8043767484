package exchange

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// waitEnd is what ended a wait on a client's connection.
type waitEnd uint8

const (
	waitedOut waitEnd = iota
	clientLeft
	drainBegan
	notified
)

// pollEvery bounds how late it is noticed that the client left, where reading cannot tell.
const pollEvery = 100 * time.Millisecond

// await waits until t on the client's own connection: its read deadline is the timer, and the
// wait ends at once if the client leaves or the process drains. Bytes that arrive meanwhile
// belong to the next request and are kept. If w is given, its queue ends the wait too, and a
// drain ends it only as admitter.endsWait says.
func (a *admitter) await(t clock.Instant, w *admission.Waiter) waitEnd {
	c := a.r.Conn
	if a.r.Process.Waiting.Add(1) > CompactAbove {
		a.x.compact()
	}
	c.Phase.Store(downstream.PhaseBackoff)
	defer func() {
		a.r.Process.Waiting.Add(-1)
		c.Phase.Store(downstream.PhaseBusy)
		c.ReadAt = clock.LongAgo // who woke us may have moved the deadline there
	}()
	for {
		c.ReadAt = t
		_ = c.NC.SetReadDeadline(a.r.Process.Clock.At(t))
		if w != nil && w.Decision.Load() != admission.Wait {
			return notified
		}
		if a.endsWait(w) {
			return drainBegan
		}
		err := a.awaitRead(t)
		switch {
		case err != nil && !rawsocket.IsTimeout(err):
			return clientLeft
		case w != nil && w.Decision.Load() != admission.Wait:
			return notified
		case a.endsWait(w):
			return drainBegan
		}
		if !a.r.Process.Clock.Now().Before(t) {
			return waitedOut
		}
	}
}

// awaitRead reads what arrives before t. With a full buffer it can only look now and then whether
// the client is still there.
func (a *admitter) awaitRead(t clock.Instant) error {
	c := a.r.Conn
	if c.W < len(c.In) {
		return c.Fill()
	}
	time.Sleep(min(pollEvery, t.Sub(a.r.Process.Clock.Now())))
	if c.HungUp() {
		return attempt.ErrClientGone
	}
	return nil
}

// endsWait reports whether a drain ends the wait of w. A nil w waits for something else than a
// queue. A request in a queue was accepted before the drain. It goes on waiting while its turn
// may come in time for a response and its upstream is not down. But no retry is sent in a drain.
func (a *admitter) endsWait(w *admission.Waiter) bool {
	s := a.r.Process
	if !s.Draining.Load() {
		return false
	}
	if w == nil || a.r.Retries > 0 || a.r.Route.UpstreamState.Admission.AdmitsOnlyProbes() {
		return true
	}
	end := time.Duration(s.WaitsEnd.Load())
	return w.ExpectedAt > end || s.Clock.Elapsed() >= end
}
