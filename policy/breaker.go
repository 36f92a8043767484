package policy

import "time"

// breaker is the pause that all requests to an upstream share while it is down.
//
//	closed --evidence--> open --due--> half open --success--> slow start --> closed
//	                     ^                 |                    |
//	                     +----- failure ---+------ evidence ----+
//
// It knows no permits and no counters; Guard puts it together with the rest. It
// is not safe for concurrent use.
type breaker struct {
	state BreakerState
	why   OpenedBy

	openedAt    time.Duration // when it was closed, and not since open
	dueAt       time.Duration // closed: when the next probe is due
	slowStartAt time.Duration // ramp: since when

	probe         uint32        // number of the probe in flight; 0 = none
	lastProbe     uint32        // the last number given
	begunAt       time.Duration // when it began
	probeEnds     time.Duration // when a hung probe is given up for another one
	backoff       Backoff       // between probes; nil: see pause
	lastProbeWait time.Duration // the last wait that it gave
	failed        int           // probes that failed since the last success
	hung          int           // probes that hung since the last success
	clientLeft    bool          // a client left late since it was closed
	unfinishedAt  time.Duration // when a request that is not whole may be let through
	activeProbe   bool          // each probe is a request of its own, so an accepted connection ends none

	opened             [numOpenedBy]uint64
	slowStarts, probes uint64
}

// How long to wait for the next probe, k = failed probes since the last
// success. Probing is cheap next to what it saves, so the waits are short; they
// grow at first because most outages are either very short or not short at all.
//
//	refused: U[1/2, 1] * min(25 ms * 2^k, 150 ms)
//	else:    U[1/2, 1] * min(100 ms * 2^k, 500 ms)
//
// With 150 ms, a request is served within 250 ms of the port being open when
// the upstream needs 100 ms for it. The jitter keeps pods apart that lost the
// same upstream in the same instant.
const (
	refusedFirst = 25 * time.Millisecond
	refusedMax   = 150 * time.Millisecond
	failedFirst  = 100 * time.Millisecond
	failedMax    = 500 * time.Millisecond
)

// A hung probe stays open, and so do the requests that were in flight when the
// upstream fell silent: the late response of any of them closes the breaker, and a
// reset of any of them, as a machine sends that took over the address, makes
// another probe due. Without either, another probe is sent only in case that all
// of them were lost without a word. Each costs a stopped server one more request
// to work off after its return, fifty proxies fifty. So it waits U[30, 60] s,
// doubled once.
//
// Where connections or statuses were what failed, the upstream is not known to be
// silent, so its recovery does not wait for one response. A connection that takes
// long may go to a server that has left a Service of several: after
// U[1/2, 1] * min(250 ms * 2^k, 5 s) another is tried beside it. A request that is not
// refused as those before it were may only take long: after U[1/4, 1/2] s another
// follows, up to failingBeside.
//
// Where connections are closed when clients leave, no late response can come.
// Then the next probe waits U[1/2, 1] * min(1 s * 2^k, 30 s), k = hung probes.
const (
	hungMin     = 30 * time.Second
	hungSpread  = 30 * time.Second
	hungDoubled = 1

	connectFirst    = 250 * time.Millisecond
	connectMax      = 5 * time.Second
	failingBeside   = 10
	patientFor      = 6 * time.Second
	clientGoneFirst = time.Second
	clientGoneMax   = 30 * time.Second
)

// trip shuts a closed breaker or one in slow start. With OpenedByStall a probe is due at
// once: the request at hand. So a false alarm delays nobody but those who come
// while that one is being answered. With OpenedByLost it is due at once as well.
func (g *breaker) trip(now time.Duration, why OpenedBy, r Rand) {
	g.why, g.openedAt = why, now
	g.opened[why]++
	g.probe, g.clientLeft, g.unfinishedAt = 0, false, now
	g.lastProbeWait = 0
	g.state, g.dueAt = BreakerOpen, now+g.probeWait(now, r)
	switch why {
	case OpenedByStall:
		g.state = BreakerHalfOpen
	case OpenedByLost:
		g.dueAt = now
	}
}

// minProbeWait keeps a strategy that does not wait from probing without a pause.
const minProbeWait = 10 * time.Millisecond

// probeWait is the wait before the next probe after a failure.
func (g *breaker) probeWait(now time.Duration, r Rand) time.Duration {
	if g.backoff != nil {
		g.lastProbeWait = max(waitOf(g.backoff, Step{Retry: g.failed, Previous: g.lastProbeWait, Elapsed: now - g.openedAt}, r), minProbeWait)
		return g.lastProbeWait
	}
	if g.why == OpenedByRefused {
		return half(grow(refusedFirst, refusedMax, 2, g.failed), r)
	}
	return half(grow(failedFirst, failedMax, 2, g.failed), r)
}

// half is uniform in [d/2, d].
func half(d time.Duration, r Rand) time.Duration { return d/2 + upTo(r, d/2) }

// expire makes the probe due when its time has come, and gives a hung one up.
func (g *breaker) expire(now time.Duration) {
	if g.state == BreakerHalfOpen && g.probe != 0 && now >= g.probeEnds {
		g.probe = 0
		g.hung++
	}
	if g.state == BreakerOpen && now >= g.dueAt {
		g.state = BreakerHalfOpen
	}
}

// due says whether a probe may be sent.
func (g *breaker) due() bool { return g.state == BreakerHalfOpen && g.probe == 0 }

// beginProbe gives the probe its number.
func (g *breaker) beginProbe(now time.Duration, r Rand) uint32 {
	g.lastProbe++
	if g.lastProbe == 0 {
		g.lastProbe++
	}
	g.probe, g.begunAt = g.lastProbe, now
	g.probes++
	g.probeEnds = now + g.hungFor(r)
	return g.probe
}

// hungFor is how long a probe may hang.
func (g *breaker) hungFor(r Rand) time.Duration {
	switch {
	case g.activeProbe:
	case g.why.connecting():
		return half(grow(connectFirst, connectMax, 2, g.hung), r)
	case g.why == OpenedByFailing && g.hung < failingBeside:
		return half(failedMax, r)
	}
	long := (hungMin + upTo(r, hungSpread)) << min(g.hung, hungDoubled)
	if g.why == OpenedByStall && !g.clientLeft {
		return min(long, half(grow(patientFor, hungMin, 2, g.hung), r))
	}
	return long
}

// clientLeftLate notes that a client left late while the breaker was not closed.
func (g *breaker) clientLeftLate(r Rand) {
	if g.clientLeft {
		return
	}
	g.clientLeft = true
	if g.probe != 0 {
		g.probeEnds = g.begunAt + g.hungFor(r)
	}
}

// probeFailed ends the probe in flight with evidence against the upstream.
func (g *breaker) probeFailed(now time.Duration, why OpenedBy, r Rand) {
	g.why, g.probe = why, 0
	g.failed++
	g.state, g.dueAt = BreakerOpen, now+g.probeWait(now, r)
}

// probeLost ends the probe in flight when nobody will hear its response.
func (g *breaker) probeLost(now time.Duration, r Rand) {
	g.probe = 0
	g.state, g.dueAt = BreakerOpen, now+half(grow(clientGoneFirst, clientGoneMax, 2, g.hung), r)
	g.hung++
}

// discardProbe ends the probe in flight that was no probe after all; another may be
// sent at once.
func (g *breaker) discardProbe() { g.probe = 0 }

// beginSlowStart begins the slow start.
func (g *breaker) beginSlowStart(now time.Duration) {
	g.state, g.slowStartAt = BreakerSlowStart, now
	g.probe, g.failed, g.hung = 0, 0, 0
	g.slowStarts++
}

// close ends the slow start, if there is one.
func (g *breaker) close() {
	if g.state == BreakerSlowStart {
		g.state = BreakerClosed
	}
}

// allowsRequests says whether requests pass, apart from probes.
func (g *breaker) allowsRequests() bool {
	return g.state == BreakerClosed || g.state == BreakerSlowStart
}

// nextEvent is when expire has something to do.
func (g *breaker) nextEvent() time.Duration {
	switch {
	case g.state == BreakerOpen:
		return g.dueAt
	case g.state == BreakerHalfOpen && g.probe != 0:
		return g.probeEnds
	}
	return Forever
}
