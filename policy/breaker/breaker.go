package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// breaker is the circuit breaker's state machine, shared by all requests to an upstream.
//
//	closed --evidence--> open --due--> half open --success--> slow start --> closed
//	                     ^                 |                    |
//	                     +----- failure ---+------ evidence ----+
//
// It knows no permits and no counters; Guard combines it with the rest. It is not safe for concurrent
// use.
type breaker struct {
	state State
	why   OpenedBy // the evidence that opened it last

	openedAt    time.Duration // when it last opened from closed or slow start
	dueAt       time.Duration // open: when the next probe is due
	slowStartAt time.Duration // when the slow start began

	probe          uint32        // number of the probe in flight; 0 = none
	lastProbe      uint32        // the last number used
	probeStartedAt time.Duration // when the probe in flight started
	probeEnds      time.Duration // when the probe in flight counts as hung, and another is due
	failed         int           // probes that failed since the last success
	hung           int           // probes that hung since the last success
	clientLeft     bool          // a client left late since the breaker opened
	unfinishedAt   time.Duration // when an incomplete request may be admitted
	activeProbe    bool          // each probe is a request of its own, so an accepted connection is no success

	opened             [numOpenedBy]uint64
	slowStarts, probes uint64
}

// Waits before the next probe, k = failed probes since the last success. A probe is cheap compared
// with an outage that lasts longer than needed, so the waits are short. They grow at first, because
// most outages are either very short or long.
//
//	refused: U[1/2, 1] * min(25 ms * 2^k, 150 ms)
//	else:    U[1/2, 1] * min(100 ms * 2^k, 500 ms)
//
// With 150 ms, a request is served within 250 ms of the port being open if the upstream needs 100 ms
// for it. The jitter spreads pods that lost the same upstream at the same instant.
const (
	refusedFirst = 25 * time.Millisecond
	refusedMax   = 150 * time.Millisecond
	failedFirst  = 100 * time.Millisecond
	failedMax    = 500 * time.Millisecond
)

// Timeouts of a probe, after which it counts as hung and another one is due.
//
// A hung probe stays open, and so do the requests that were in flight when the upstream
// stopped responding. A late response to any of them closes the breaker. Another probe is
// only needed in case all of them were lost silently. Each costs a stopped server one more
// request to work off after its recovery, and fifty proxies cost it fifty. So the timeout is
// U[30, 60] s.
//
// After failed connections or statuses the upstream is not known to be silent, so its
// recovery does not wait for one response. A slow connection may go to a server that has
// left a Service of several. After U[1/2, 1] * min(250 ms * 2^k, 5 s) another connection is
// tried beside it. A request that is not refused like the earlier ones may merely take
// long. After U[1/4, 1/2] s another one follows, up to maxFailingProbes.
//
// After a stall the timeout is at most U[1/2, 1] * min(6 s * 2^k, 30 s), unless a client
// left late.
//
// If the connection of a probe is closed when its client leaves, no late response can come.
// It counts as a failed probe. After a stall the next one waits U[1/2, 1] * min(1 s * 2^f,
// 5 s), since the server may still have its request to work off.
//
// k = hung probes, f = failed probes.
const (
	hungMin    = 30 * time.Second
	hungJitter = 30 * time.Second

	connectFirst      = 250 * time.Millisecond
	connectMax        = 5 * time.Second
	maxFailingProbes  = 10
	stallProbeTimeout = 6 * time.Second
	probeClosedFirst  = time.Second
	probeClosedMax    = 5 * time.Second
)

// trip opens a breaker that is closed or in slow start. With OpenedByStall a probe is due
// at once: the current request. So a false alarm delays only the requests that arrive while
// that one is in flight. With OpenedByLost the probe is due at once as well.
func (g *breaker) trip(now time.Duration, why OpenedBy, r backoff.Rand) {
	g.why, g.openedAt = why, now
	g.opened[why]++
	g.clientLeft, g.unfinishedAt = false, now
	g.state, g.dueAt = Open, now+g.probeWait(r)
	switch why {
	case OpenedByStall:
		g.state = HalfOpen
	case OpenedByLost:
		g.dueAt = now
	}
}

// probeWait returns the wait before the next probe after a failure.
func (g *breaker) probeWait(r backoff.Rand) time.Duration {
	if g.why == OpenedByRefused {
		return equalJitter(backoff.Grow(refusedFirst, refusedMax, 2, g.failed), r)
	}
	return equalJitter(backoff.Grow(failedFirst, failedMax, 2, g.failed), r)
}

// equalJitter returns a duration uniform in [d/2, d].
func equalJitter(d time.Duration, r backoff.Rand) time.Duration { return d/2 + backoff.UpTo(r, d/2) }

// expire makes the probe due when its time has come, and gives up a hung one.
func (g *breaker) expire(now time.Duration) {
	if g.state == HalfOpen && g.probe != 0 && now >= g.probeEnds {
		g.probe = 0
		g.hung++
	}
	if g.state == Open && now >= g.dueAt {
		g.state = HalfOpen
	}
}

// due reports whether a probe may be sent.
func (g *breaker) due() bool { return g.state == HalfOpen && g.probe == 0 }

// beginProbe starts a probe and returns its number, which is never 0.
func (g *breaker) beginProbe(now time.Duration, r backoff.Rand) uint32 {
	g.lastProbe++
	if g.lastProbe == 0 {
		g.lastProbe++
	}
	g.probe, g.probeStartedAt = g.lastProbe, now
	g.probes++
	g.probeEnds = now + g.probeTimeout(r)
	return g.probe
}

// probeTimeout returns how long a probe may be in flight before it counts as hung.
func (g *breaker) probeTimeout(r backoff.Rand) time.Duration {
	switch {
	case g.why == OpenedByStall && !g.clientLeft:
		return equalJitter(backoff.Grow(stallProbeTimeout, hungMin, 2, g.hung), r)
	case g.activeProbe:
	case g.why.connecting():
		return equalJitter(backoff.Grow(connectFirst, connectMax, 2, g.hung), r)
	case g.why == OpenedByFailing && g.hung < maxFailingProbes:
		return equalJitter(failedMax, r)
	}
	return hungMin + backoff.UpTo(r, hungJitter)
}

// clientLeftLate records that a client left late while the breaker was not closed.
func (g *breaker) clientLeftLate(r backoff.Rand) {
	if g.clientLeft {
		return
	}
	g.clientLeft = true
	if g.probe != 0 {
		g.probeEnds = g.probeStartedAt + g.probeTimeout(r)
	}
}

// probeFailed ends the probe in flight as a failure of the upstream.
func (g *breaker) probeFailed(now time.Duration, why OpenedBy, r backoff.Rand) {
	g.why, g.probe = why, 0
	g.failed++
	g.state, g.dueAt = Open, now+g.probeWait(r)
}

// probeClosed ends the probe in flight after its connection was closed without a result.
func (g *breaker) probeClosed(now time.Duration, r backoff.Rand) {
	failed := g.failed
	g.probeFailed(now, g.why, r)
	if g.why == OpenedByStall {
		g.dueAt = now + equalJitter(backoff.Grow(probeClosedFirst, probeClosedMax, 2, failed), r)
	}
}

// discardProbe ends the probe in flight without a result; another may be sent at once.
func (g *breaker) discardProbe() { g.probe = 0 }

// beginSlowStart starts the slow start.
func (g *breaker) beginSlowStart(now time.Duration) {
	g.state, g.slowStartAt = SlowStart, now
	g.probe, g.failed, g.hung = 0, 0, 0
	g.slowStarts++
}

// close ends the slow start, if there is one.
func (g *breaker) close() {
	if g.state == SlowStart {
		g.state = Closed
	}
}

// allowsRequests reports whether ordinary requests pass.
func (g *breaker) allowsRequests() bool {
	return g.state == Closed || g.state == SlowStart
}

// nextEvent returns when expire changes the state, or Forever.
func (g *breaker) nextEvent() time.Duration {
	switch {
	case g.state == Open:
		return g.dueAt
	case g.state == HalfOpen && g.probe != 0:
		return g.probeEnds
	}
	return backoff.Forever
}

// probesSeparately reports whether the caller takes the due probe with Guard.Probe.
func (g *breaker) probesSeparately() bool {
	return g.activeProbe || g.why.connecting()
}

// verdict returns the verdict for an attempt while the breaker is not closed.
func (g *breaker) verdict(now time.Duration, whole bool) Verdict {
	switch {
	case !g.due() || g.probesSeparately():
		return VerdictBreakerOpen
	case whole:
		return VerdictProbe
	case now >= g.unfinishedAt:
		return VerdictGo
	}
	return VerdictBreakerOpen
}

// reason returns the evidence for a failure that opens the breaker or keeps it open.
// unanswered is whether most recent failures had no response. The evidence determines what
// closes the breaker again (see core.recordEndNotClosed and Guard.Accepted).
func (g *breaker) reason(e AttemptEnd, unanswered bool) OpenedBy {
	switch {
	case e.Kind == Refused:
		return OpenedByRefused
	case e.Kind == DialFailed:
		return OpenedByDial
	case e.Kind != Responded && !g.allowsRequests() && g.why == OpenedByStall,
		g.allowsRequests() && unanswered:
		return OpenedByStall
	}
	return OpenedByFailing
}
