package proxy

import (
	"time"
)

// waitEnd says what ended a wait on a client's connection.
type waitEnd uint8

const (
	waitedOut waitEnd = iota
	clientLeft
	drainBegan
	told
)

// pollEvery bounds how late a client's leaving is noticed where reading cannot tell.
const pollEvery = 100 * time.Millisecond

// await waits until t, on the client's own connection: its read deadline is
// the timer, and the client's leaving or a drain end the wait at once. Bytes
// that come meanwhile belong to the next request and are kept.
// w, where given, is told by the queue, which ends the wait too, and a drain
// only as waiter.drained says.
func (c *conn) await(t instant, w *waiter) waitEnd {
	if c.server.waiting.Add(1) > compactAbove {
		c.x.compact()
	}
	c.phase.Store(phaseBackoff)
	defer func() {
		c.server.waiting.Add(-1)
		c.phase.Store(phaseBusy)
		c.readAt = longAgo // who woke us may have moved the deadline there
	}()
	for {
		c.readAt = t
		_ = c.nc.SetReadDeadline(c.server.at(t))
		if w != nil && w.decision.Load() != decisionWait {
			return told
		}
		if w.endedByDrain(c.server) {
			return drainBegan
		}
		err := c.awaitRead(t)
		switch {
		case err != nil && !isTimeout(err):
			return clientLeft
		case w != nil && w.decision.Load() != decisionWait:
			return told
		case w.endedByDrain(c.server):
			return drainBegan
		}
		if !c.server.now().Before(t) {
			return waitedOut
		}
	}
}

// awaitRead reads what comes before t; with a full buffer it can only look
// now and then whether the client is still there.
func (c *conn) awaitRead(t instant) error {
	if c.w < len(c.in) {
		return c.fill()
	}
	time.Sleep(min(pollEvery, t.Sub(c.server.now())))
	if c.hungUp() {
		return errClientGone
	}
	return nil
}
