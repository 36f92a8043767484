package breaker

import (
	"sync/atomic"
	"time"
)

// evidence counts how attempts ended over the last seconds and decides when the upstream as
// a whole fails.
//
// It fails if within the last second, or the last five, at least 20 attempts ended and 90 %
// of them failed. The short window detects an outage within about a second whatever
// preceded it. The long one is for services with few requests. One failing URL among
// healthy ones is not enough, however often clients request it. If four of five failures
// have the same key, a good response with another key keeps the breaker closed (see urls).
//
// Failures on top of the usual traffic are not enough either. While good responses arrive
// at half of their usual rate or more, the upstream is up. So a client that sends nothing
// but failing requests does not affect others. If good responses are rare, their number
// says little. Then one to a URL that does not fail keeps the breaker closed, for
// responseValidFor.
type evidence struct {
	slots    [evidenceSlots]evidenceSlot
	slot     int64   // number of the current slot
	meanGood float64 // good responses per slot, a mean that decays over longWindow

	// Since the first failure after a pause of longWindow:
	failures       int64         // failures of all keys
	unanswered     int64         // those without a response in time
	topKey         uint32        // the key that most failures have, if there is one (Boyer-Moore majority vote)
	votes          int64         // the counter of that vote
	topKeyFailures int64         // failures with topKey, since it is topKey
	lastBad        time.Duration // the latest failure
	any            bool          // lastBad is set
}

type evidenceSlot struct{ good, bad int64 }

const (
	evidenceSlotTime = 100 * time.Millisecond
	evidenceSlots    = int64(longWindow / evidenceSlotTime)
	shortWindow      = time.Second
	longWindow       = 5 * time.Second

	evidenceVolume = 20  // the minimum number of attempts
	evidenceShare  = 0.9 // the share of failed attempts
	enoughGood     = 6   // the usual number of good responses in a window from which half of it is too few
	sameKeyShare   = 0.8 // the share of failures with the same key that points to one URL
)

// advance drops what is older than the windows.
func (e *evidence) advance(now time.Duration) {
	slot := int64(max(now, 0) / evidenceSlotTime)
	for n := min(slot-e.slot, evidenceSlots); n > 0; n-- {
		e.meanGood += (float64(e.slots[(slot-n)%evidenceSlots].good) - e.meanGood) / float64(evidenceSlots)
		e.slots[(slot-n+1)%evidenceSlots] = evidenceSlot{}
	}
	e.slot = max(e.slot, slot)
	if e.any && now-e.lastBad >= longWindow {
		*e = evidence{slots: e.slots, slot: e.slot, meanGood: e.meanGood}
	}
}

// recentFailures reports whether there were recent failures, so that keys and send times of
// good responses matter.
func (e *evidence) recentFailures() bool { return e.any }

// expectFailures makes recentFailures return true for longWindow.
func (e *evidence) expectFailures(now time.Duration) {
	e.advance(now)
	e.lastBad, e.any = max(now, e.lastBad), true
}

// good counts n good responses with unknown keys.
func (e *evidence) good(now time.Duration, n int64) {
	e.advance(now)
	e.slots[e.slot%evidenceSlots].good += n
}

// bad counts a failed attempt.
func (e *evidence) bad(now time.Duration, end AttemptEnd) {
	key := end.Key
	e.expectFailures(now)
	if end.Kind == TimedOut || end.Kind == Abandoned {
		e.unanswered++
	}
	e.slots[e.slot%evidenceSlots].bad++
	e.failures++
	switch {
	case key == e.topKey:
		e.votes++
	case e.votes > 0:
		e.votes--
	default:
		e.topKey, e.votes, e.topKeyFailures = key, 1, 0
	}
	if key == e.topKey {
		e.topKeyFailures++
	}
}

// upstreamFails reports whether the upstream as a whole fails, after bad.
func (e *evidence) upstreamFails() bool {
	var good, bad int64
	for i := range evidenceSlots {
		s := &e.slots[(e.slot-i+evidenceSlots)%evidenceSlots]
		good += s.good
		bad += s.bad
		if i+1 == int64(shortWindow/evidenceSlotTime) && mostlyFailed(good, bad) && !e.goodAsUsual(good, i+1) {
			return true
		}
	}
	return mostlyFailed(good, bad) && !e.goodAsUsual(good, evidenceSlots)
}

// goodAsUsual reports whether there were at least two good responses within slots, and no
// fewer than half of the usual number. If too few are usual in a short window to decide, it
// returns true and leaves the decision to the longer window.
func (e *evidence) goodAsUsual(good, slots int64) bool {
	expected := e.meanGood * float64(slots)
	if slots < evidenceSlots && expected >= 0.5 && expected < enoughGood {
		return true
	}
	return good >= 2 && 2*float64(good) >= expected
}

// rarelyGood reports whether too few good responses are usual in the long window to judge by
// their number.
func (e *evidence) rarelyGood() bool { return e.meanGood*float64(evidenceSlots) < enoughGood }

// mostlyUnanswered reports whether most failures are missing responses.
func (e *evidence) mostlyUnanswered() bool { return 2*e.unanswered > e.failures }

func mostlyFailed(good, bad int64) bool {
	return good+bad >= evidenceVolume && float64(bad) >= evidenceShare*float64(good+bad)
}

// oneKey reports whether nearly all failures have the key topKey.
func (e *evidence) oneKey() bool {
	return e.topKey != 0 && float64(e.topKeyFailures) >= sameKeyShare*float64(e.failures)
}

// lossBurst detects an upstream that loses everything in flight at once, as a killed
// process does: nearly all requests sent before the first loss are lost too.
//
// It is checked before the failure share of the last second or five, because earlier
// successes still count there. A breaker that it opens makes a probe due at once. If that
// connects, for example to a process that has already restarted, nobody has waited. The
// lost requests are then sent again at the rate of the slow start instead of from the
// budget.
type lossBurst struct {
	on        bool
	first     time.Duration // when the first request was lost
	last      time.Duration
	minLost   int64 // how many must be lost
	lost      int64 // requests sent before first that were lost
	succeeded int64 // requests sent before first that were answered well since
}

const (
	lossBurstGap   = 250 * time.Millisecond // the burst ends after this long without a loss
	lossBurstMax   = 20                     // lost requests that are enough, as in evidence
	lossBurstMin   = 10                     // minimum, if fewer were in flight: the budget's burst retries fewer
	lossBurstShare = 0.9
)

// recordLoss counts the loss of a request sent at sent; others is the number of other
// requests in flight. It reports whether nearly all requests in flight at the first loss
// are lost.
func (b *lossBurst) recordLoss(sent, now time.Duration, others int64) bool {
	if !b.on || now-b.last > lossBurstGap {
		*b = lossBurst{on: true, first: now, minLost: max(lossBurstMin, min(lossBurstMax, others+1))}
	}
	if sent >= b.first {
		return false
	}
	b.lost++
	b.last = max(b.last, now)
	return b.lost >= b.minLost && float64(b.lost) >= lossBurstShare*float64(b.lost+b.succeeded)
}

// recordResponse counts a good response to a request sent at sent.
func (b *lossBurst) recordResponse(sent time.Duration) {
	if b.on && sent < b.first {
		b.succeeded++
	}
}

// LosingInFlight reports whether the upstream may be losing all its requests in flight, so
// that the breaker may open. That turns out within lossBurstGap.
func (g *Guard) LosingInFlight(now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &g.core.lossBurst
	return b.on && now < b.last+lossBurstGap && !g.options.NoBreaker && float64(b.lost) >= lossBurstShare*float64(b.lost+b.succeeded)
}

// connections holds the evidence of failed connections. One address may stand for several
// servers, as a Kubernetes Service does, so a refused connection is evidence about one of
// them. It is evidence about the upstream as a whole if nothing contradicts it since the
// attempt began: no connection was accepted, and no request sent since was answered. To
// find out, the proxy dials some more times before it reports the attempt (see
// Guard.DialRetried).
//
// Responses to requests sent earlier do not count: an application that shuts down refuses
// connections while it finishes its work.
type connections struct {
	lastAcceptAt atomic.Int64  // when the upstream last accepted a connection
	servedAt     time.Duration // when the latest request with a good response was sent

	// Dials that were cut short since nothing contradicts them; see core.cutDialShows.
	cutSince time.Duration // when the first of these attempts began
	cutLast  time.Duration // when the last one ended
}

// acceptedSince reports whether a connection was accepted after at, or a request sent after
// at got a good response.
func (c *connections) acceptedSince(at time.Duration) bool {
	return time.Duration(c.lastAcceptAt.Load()) > at || c.servedAt > at
}

// accepts reports whether the upstream accepts connections although the attempt's
// connection failed.
func (g *core) accepts(p Permit, now time.Duration, e AttemptEnd) bool {
	if g.connections.acceptedSince(p.at) {
		return true
	}
	if e.Kind != DialFailed {
		return false
	}
	// The dial failed slowly while existing connections work. lastResponseAt is as precise
	// as the refresh interval.
	g.refresh(now)
	return g.silence.stall.lastResponseAt > p.at
}

// cutDialTime is how long dials must have been cut short to show that the upstream accepts no
// connection: as long as a dial may take by default.
const cutDialTime = 3 * time.Second

// cutDialShows reports whether the dial of an attempt that began at the time at is evidence,
// although its client's deadline cut it short. If all clients are in such a hurry, nothing else
// shows that the upstream is gone. Meanwhile no connection was accepted and no response came.
func (g *core) cutDialShows(at, now time.Duration) bool {
	if !g.breaker.allowsRequests() {
		return false
	}
	g.refresh(now)
	c := &g.connections
	if now-c.cutLast > cutDialTime || c.acceptedSince(c.cutSince) || g.silence.stall.lastResponseAt > c.cutSince {
		c.cutSince = at
	}
	c.cutLast = now
	return now-c.cutSince >= cutDialTime && g.breaker.allowsRequests()
}

// DialRetried records that a connection for an attempt failed and is tried again. Responses
// then take the slow path, which knows when their requests were sent.
func (g *Guard) DialRetried(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.evidence.expectFailures(now)
	g.core.publish(now)
}

// Accepted records that the upstream accepted a connection, TLS handshake included. If
// failed connections opened the breaker, slow start begins at once, however long a response
// takes.
func (g *Guard) Accepted(now time.Duration) Signal {
	g.core.connections.lastAcceptAt.Store(int64(now))
	if g.counters.mode.Load()&modeSlow == 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.core.breaker.allowsRequests() || g.options.ActiveProbe || !g.core.breaker.why.connecting() {
		return 0
	}
	before := g.core.eventAt
	g.core.beginSlowStart(now)
	return g.core.finish(now, before)
}
