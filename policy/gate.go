package policy

import "time"

// gate is the pause that all requests to an upstream share while it is down.
//
//	open --evidence--> closed --due--> half open --success--> ramp --> open
//	                     ^                 |                    |
//	                     +----- failure ---+------ evidence ----+
//
// It knows no places and no counters; Guard puts it together with the rest. It
// is not safe for concurrent use.
type gate struct {
	state GateState
	why   ClosedBy

	closedAt time.Duration // when it was closed, and not since open
	dueAt    time.Duration // closed: when the next probe is due
	rampedAt time.Duration // ramp: since when

	probe        uint32        // number of the probe under way; 0 = none
	lastProbe    uint32        // the last number given
	begunAt      time.Duration // when it began
	probeEnds    time.Duration // when a hung probe is given up for another one
	backoff      Backoff       // between probes; nil: see pause
	paused       time.Duration // the last wait that it gave
	failed       int           // probes that failed since the last success
	hung         int           // probes that hung since the last success
	impatient    bool          // a caller left late since it was closed
	unfinishedAt time.Duration // when a request that is not whole may be let through
	asks         bool          // each probe is a request of its own, so an accepted connection ends none
	held         held          // by what others of a fleet say

	closed           [numClosedBy]uint64
	reopened, probes uint64
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
	refusedMost  = 150 * time.Millisecond
	failedFirst  = 100 * time.Millisecond
	failedMost   = 500 * time.Millisecond
)

// A hung probe stays open, and so do the requests that were under way when the
// upstream fell silent: the late answer of any of them opens the gate, and a
// reset of any of them, as a machine sends that took over the address, makes
// another probe due. Without either, another probe is sent only in case that all
// of them were lost without a word. Each costs a stopped server one more request
// to work off after its return, fifty proxies fifty. So it waits U[30, 60] s,
// doubled once.
//
// Where connections or statuses were what failed, the upstream is not known to be
// silent, so its recovery does not wait for one answer. A connection that takes
// long may go to a server that has left a Service of several: after
// U[1/2, 1] * min(250 ms * 2^k, 5 s) another is tried beside it. A request that is not
// refused as those before it were may only take long: after U[1/4, 1/2] s another
// follows, up to failingBeside.
//
// Where connections are closed when callers leave, no late answer can come.
// Then the next probe waits U[1/2, 1] * min(1 s * 2^k, 30 s), k = hung probes.
const (
	hungLeast   = 30 * time.Second
	hungSpread  = 30 * time.Second
	hungDoubled = 1

	connectFirst  = 250 * time.Millisecond
	connectMost   = 5 * time.Second
	failingBeside = 10
	patientFor    = 6 * time.Second
	goneFirst     = time.Second
	goneMost      = 30 * time.Second
)

// close shuts an open or opening gate. With ClosedByStall a probe is due at
// once: the request at hand. So a false alarm delays nobody but those who come
// while that one is being answered. With ClosedByLost it is due at once as well.
func (g *gate) close(now time.Duration, why ClosedBy, r Rand) {
	g.why, g.closedAt = why, now
	g.closed[why]++
	g.probe, g.impatient, g.held, g.unfinishedAt = 0, false, held{}, now
	g.paused = 0
	g.state, g.dueAt = GateClosed, now+g.pause(now, r)
	switch why {
	case ClosedByStall:
		g.state = GateHalfOpen
	case ClosedByLost:
		g.dueAt = now
	}
}

// leastPause keeps a strategy that does not wait from probing without a pause.
const leastPause = 10 * time.Millisecond

// pause is the wait before the next probe after a failure.
func (g *gate) pause(now time.Duration, r Rand) time.Duration {
	if g.backoff != nil {
		g.paused = max(waitOf(g.backoff, Step{Retry: g.failed, Previous: g.paused, Elapsed: now - g.closedAt}, r), leastPause)
		return g.paused
	}
	if g.why == ClosedByRefused {
		return half(grow(refusedFirst, refusedMost, 2, g.failed), r)
	}
	return half(grow(failedFirst, failedMost, 2, g.failed), r)
}

// half is uniform in [d/2, d].
func half(d time.Duration, r Rand) time.Duration { return d/2 + upTo(r, d/2) }

// expire makes the probe due when its time has come, and gives a hung one up.
func (g *gate) expire(now time.Duration) {
	if g.state == GateHalfOpen && g.probe != 0 && now >= g.probeEnds {
		g.probe, g.held.most = 0, 0
		g.hung++
	}
	switch {
	case g.holds(now):
		g.held.from = min(g.held.from, g.dueAt)
		if g.due() {
			g.state = GateClosed
		}
	case g.state == GateClosed && now >= g.readyAt():
		g.state = GateHalfOpen
	}
}

// due says whether a probe may be sent.
func (g *gate) due() bool { return g.state == GateHalfOpen && g.probe == 0 }

// begin gives the probe its number.
func (g *gate) begin(now time.Duration, r Rand) uint32 {
	g.lastProbe++
	if g.lastProbe == 0 {
		g.lastProbe++
	}
	g.probe, g.begunAt, g.held.most = g.lastProbe, now, 0
	g.probes++
	g.probeEnds = now + g.hungFor(r)
	return g.probe
}

// hungFor is how long a probe may hang.
func (g *gate) hungFor(r Rand) time.Duration {
	switch {
	case g.asks:
	case g.why.connecting():
		return half(grow(connectFirst, connectMost, 2, g.hung), r)
	case g.why == ClosedByFailing && g.hung < failingBeside:
		return half(failedMost, r)
	}
	long := (hungLeast + upTo(r, hungSpread)) << min(g.hung, hungDoubled)
	if g.why == ClosedByStall && !g.impatient {
		return min(long, half(grow(patientFor, hungLeast, 2, g.hung), r))
	}
	return long
}

// lostPatience notes that a caller left late while the gate was not open.
func (g *gate) lostPatience(r Rand) {
	if g.impatient {
		return
	}
	g.impatient = true
	if g.probe != 0 {
		g.probeEnds = g.begunAt + g.hungFor(r)
	}
}

// fail ends the probe under way with evidence against the upstream.
func (g *gate) fail(now time.Duration, why ClosedBy, r Rand) {
	g.why, g.probe = why, 0
	g.failed++
	g.state, g.dueAt = GateClosed, now+g.pause(now, r)
}

// lose ends the probe under way when nobody will hear its answer.
func (g *gate) lose(now time.Duration, r Rand) {
	g.probe = 0
	g.state, g.dueAt = GateClosed, now+half(grow(goneFirst, goneMost, 2, g.hung), r)
	g.hung++
}

// waive ends the probe under way that was no probe after all; another may be
// sent at once.
func (g *gate) waive() { g.probe, g.held = 0, held{} }

// reopen begins the ramp.
func (g *gate) reopen(now time.Duration) {
	g.state, g.rampedAt = GateRamp, now
	g.probe, g.failed, g.hung = 0, 0, 0
	g.reopened++
}

// opened ends the ramp, if there is one.
func (g *gate) opened() {
	if g.state == GateRamp {
		g.state = GateOpen
	}
}

// passing says whether requests pass, apart from probes.
func (g *gate) passing() bool { return g.state == GateOpen || g.state == GateRamp }

// event is when expire has something to do.
func (g *gate) event() time.Duration {
	switch {
	case g.state == GateClosed:
		return g.readyAt()
	case g.state == GateHalfOpen && g.probe != 0:
		return g.probeEnds
	}
	return Forever
}
