package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// core holds the rules of a Guard: what it knows of the upstream, and what it decides. All
// its methods require Guard.mu. Each part owns its state: failures are in evidence,
// lossBurst and connections, missing responses in silence, latencies in learner, recovery
// and baseline.
type core struct {
	counters *counters // of the Guard
	options  *Options

	breaker     breaker
	limiter     limits
	evidence    evidence
	connections connections
	lossBurst   lossBurst
	silence     silence
	recovery    recoveryLatencies
	baseline    latency.Baseline
	learner     learner
	waiting     waiting
	eventAt     time.Duration // see Guard.NextEvent
}

// verdictHead returns the verdict for the first request in the queue. While the breaker is
// not closed, that is the first complete request, if there is one.
func (g *core) verdictHead(now time.Duration) Verdict {
	return g.verdict(now, true, g.waiting.anyWhole())
}

// verdict returns the verdict for an attempt now. The first request in the queue takes
// precedence over new ones.
func (g *core) verdict(now time.Duration, head, whole bool) Verdict {
	first := head || !g.waiting.any()
	if !g.breaker.allowsRequests() {
		if !first {
			return VerdictBreakerOpen
		}
		v := g.breaker.verdict(now, whole)
		if v == VerdictGo && g.limiter.atFixed(g.counters, whole) {
			return VerdictBreakerOpen
		}
		return v
	}
	if g.silence.suspect.on {
		if first && g.silence.suspect.mayAdmit(now) && !g.limiter.atFixed(g.counters, whole) {
			return VerdictGo
		}
		if g.options.NoBreaker {
			return VerdictAtLimit
		}
		return VerdictSuspect
	}
	first = first || whole && !g.waiting.anyWhole() // incomplete ones may wait for what it does not need
	if first && g.limiter.allows(g.counters, whole) || !g.limiter.limited() {
		return VerdictGo
	}
	if g.breaker.state == SlowStart {
		return VerdictBreakerOpen
	}
	return VerdictAtLimit
}

// issuePermit takes a permit for a request, complete or not, after VerdictGo or
// VerdictProbe.
func (g *core) issuePermit(now time.Duration, v Verdict, whole bool) Permit {
	g.counters.acquired.Add(1)
	p := Permit{at: now, kind: permitTaken}
	if !whole {
		p = g.counters.addSending(p)
	}
	switch {
	case v == VerdictProbe:
		p.probe = g.breaker.beginProbe(now, g.options.Rand)
	case !g.breaker.allowsRequests():
		g.breaker.unfinishedAt = now + g.breaker.probeTimeout(g.options.Rand)
	}
	g.silence.suspect.admitted(now)
	g.publish(now)
	return p
}

// recordEnd records the end of an attempt.
func (g *core) recordEnd(p Permit, now time.Duration, e AttemptEnd) {
	g.silence.responseSeen(e)
	if !g.breaker.allowsRequests() {
		g.recordEndNotClosed(p, now, e)
		return
	}
	switch {
	case e.Kind == Unsent || e.Kind == Connected:
	case e.isSuccess():
		g.recordSuccess(p, now, e)
	case p.kind == permitAbandoned: // it was counted as a failure when it was abandoned
	case (e.Kind == Refused || e.Kind == DialFailed) && !g.accepts(p, now, e):
		g.tripBreaker(now, g.breaker.reason(e, g.evidence.mostlyUnanswered()))
	default:
		g.recordFailure(p, now, e)
	}
}

// recordSuccess counts a good response while the breaker is closed or in slow start.
func (g *core) recordSuccess(p Permit, now time.Duration, e AttemptEnd) {
	g.connections.servedAt = max(g.connections.servedAt, p.at)
	g.evidence.good(now, 1)
	g.lossBurst.recordResponse(p.at)
	g.silence.urls.recordResponse(now, e.Key)
	if g.limiter.bound {
		g.limiter.recordEnd(now, p.at, true, &g.baseline)
	}
	g.counters.fresh.Add(now - p.at)
	if g.breaker.state == SlowStart && g.recovery.recordResponse(p.at, now, &g.baseline) {
		g.becameSlower(&g.recovery.seen, now)
	}
}

// recordFailure counts a failure while the breaker is closed or in slow start.
func (g *core) recordFailure(p Permit, now time.Duration, e AttemptEnd) {
	g.evidence.bad(now, e)
	g.silence.urls.recordFailure(e.Key)
	if g.limiter.bound {
		g.limiter.recordEnd(now, p.at, false, &g.baseline)
	}
	switch {
	case e.Kind == Reset && g.lossBurst.recordLoss(p.at, now, g.counters.inFlight()):
		g.tripBreaker(now, OpenedByLost)
	case (g.evidence.oneKey() || g.breaker.state == Closed && g.evidence.rarelyGood()) && g.silence.urls.anotherResponds(now, func(key uint32) bool { return key == g.evidence.topKey }):
	case g.evidence.upstreamFails():
		g.tripBreaker(now, g.breaker.reason(e, g.evidence.mostlyUnanswered()))
	}
}

// recordAbandoned records an attempt that no client waits for. A client that leaves early
// is no evidence.
func (g *core) recordAbandoned(p Permit, now time.Duration, e AttemptEnd) {
	age := now - p.at
	late := e.Kind == TimedOut || age >= overdue(&g.baseline)
	if late && p.at >= g.silence.stall.since() {
		g.silence.stall.leftLate++
	}
	if e.Closed {
		g.counters.neverAnswered() // its response cannot be received, so it does not count as missing
		g.silence.stall.unsent(p.at)
		g.silence.stall.closed(p.at, age, &g.baseline)
	}
	switch {
	case late && g.breaker.allowsRequests():
		g.recordFailure(p, now, e)
	case late:
		g.breaker.clientLeftLate(g.options.Rand)
	}
	if !g.breaker.allowsRequests() && e.Closed && p.probe != 0 && p.probe == g.breaker.probe {
		g.breaker.probeClosed(now, g.options.Rand)
	}
}

// recordEndNotClosed records the end of an attempt while the breaker is not closed.
func (g *core) recordEndNotClosed(p Permit, now time.Duration, e AttemptEnd) {
	probe := p.probe != 0 && p.probe == g.breaker.probe
	switch {
	case e.Kind == Connected && (g.breaker.why.connecting() || g.options.ActiveProbe && probe):
		g.beginSlowStart(now)
		g.limiter.noResponseYet = true
	case e.isSuccess():
		// If the upstream refuses connections or fails, a response to an earlier request
		// shows nothing, since it may be the last good one. If it is silent, any response
		// counts.
		if probe || p.at > g.breaker.openedAt || g.breaker.why == OpenedByStall {
			g.beginSlowStart(now)
		}
	case !probe:
	case e.Kind == Connected, e.Kind == Unsent:
		g.breaker.discardProbe()
	default:
		g.breaker.probeFailed(now, g.breaker.reason(e, g.evidence.mostlyUnanswered()), g.options.Rand)
	}
}

// tripBreaker opens the breaker. With NoBreaker it can only bind the limit.
func (g *core) tripBreaker(now time.Duration, why OpenedBy) {
	if g.options.NoBreaker {
		if g.limiter.mayBind() && (why == OpenedByFailing || why == OpenedByStall) {
			g.bindLimit(now, g.counters.awaitingResponse())
		}
		return
	}
	if g.breaker.state == Closed {
		g.recovery = recoveryLatencies{}
	}
	g.breaker.trip(now, why, g.options.Rand)
	g.lossBurst = lossBurst{}
	g.limiter.release()
}

// bindLimit makes the limit bind at atOnce requests in flight.
func (g *core) bindLimit(now time.Duration, atOnce int64) {
	g.limiter.bind(now, atOnce)
	g.limiter.unfinished = g.counters.sending.Load()
}

// beginSlowStart starts the slow start.
func (g *core) beginSlowStart(now time.Duration) {
	noResponseYet := g.breaker.why != OpenedByStall
	g.breaker.beginSlowStart(now)
	g.recovery.begin(now)
	g.counters.freeAbandoned()
	g.evidence = evidence{}
	g.limiter.start(now, &g.baseline)
	g.limiter.noResponseYet = noResponseYet
	g.limiter.unfinished = g.counters.sending.Load()
	g.silence.stall.reset(now, g.counters.sent(), g.counters.responses())
}

// The fast paths only count. Every refreshInterval (about 40 ms if responses take 100 ms)
// one of them reads the counters.

// refreshIfDue requires g.mu, like all functions below.
func (g *core) refreshIfDue(now time.Duration) bool {
	if int64(now) < g.counters.tickAt.Load() {
		return false
	}
	g.refresh(now)
	g.counters.tickAt.Store(int64(now + refreshInterval(&g.baseline)))
	return true
}

// refresh processes what the fast paths counted.
func (g *core) refresh(now time.Duration) {
	if good := g.learner.observe(g.counters); good > 0 {
		g.evidence.good(now, good)
	}
	if dt := now - g.baseline.FoldedAt; dt >= latency.FoldEvery {
		g.learn(now, dt)
	}
	g.counters.expireAbandoned(now, g.abandonedPeriod())
	if g.silence.stall.update(now, g.counters.sent(), g.counters.responses()) {
		g.learner.pending(now, g.counters, &g.baseline, g.breaker.state == Closed)
	}
	g.checkStall(now)
}

// abandonedPeriod returns the period of abandonedPermits. If nothing is heard of an
// abandoned attempt, it counts as in flight for five to ten times the usual 90th
// percentile. While the breaker is not closed, the upstream may make no progress at all. Then
// only slow start or a minute frees it.
func (g *core) abandonedPeriod() time.Duration {
	const least, most, openBound = time.Second, 15 * time.Second, 30 * time.Second
	if !g.breaker.allowsRequests() {
		return openBound
	}
	if !g.baseline.Known() {
		return most
	}
	return max(least, min(5*g.baseline.P90, most))
}

// finish ends every call that may have changed something. It applies what is due, publishes
// the state to the fast paths, and returns what the caller has to do.
func (g *core) finish(now, eventBefore time.Duration) Signal {
	g.expire(now)
	if g.limiter.bound && g.limiter.mayEnd(now, g.waiting.any() || !g.limiter.allows(g.counters, true)) {
		g.limiter.release()
	}
	if g.breaker.state == SlowStart && (!g.limiter.bound || !g.limiter.starting && now >= g.breaker.slowStartAt+slowStartMax) {
		g.breaker.close()
	}
	if g.limiter.bound && g.waiting.any() && g.breaker.allowsRequests() && !g.silence.suspect.on && g.verdictHead(now) > VerdictProbe {
		g.limiter.trickle(now, g.silence.stall.lastResponseAt, overdue(&g.baseline), g.counters.awaitingResponse(), g.counters.sending.Load())
	}
	g.publish(now)
	var s Signal
	if g.waiting.any() && g.verdictHead(now) <= VerdictProbe {
		s |= SignalWake
	}
	if g.eventAt != eventBefore {
		s |= SignalEvent
	}
	return s
}

// slowStartMax is when a slow start ends, unless the limiter's slow start still runs. After
// it, requests wait for an upstream that is up and busy.
const slowStartMax = 5 * time.Second

// expire applies what is due by time alone, and forgets uploads that ended.
func (g *core) expire(now time.Duration) {
	g.limiter.unfinished = min(g.limiter.unfinished, g.counters.sending.Load())
	g.breaker.expire(now)
	g.limiter.growBlindly(now, &g.baseline)
}

// publish makes the state visible to the fast paths and computes the next event.
func (g *core) publish(now time.Duration) {
	mode := uint32(0)
	if g.limiter.limited() || !g.breaker.allowsRequests() || g.silence.suspect.on || g.waiting.any() {
		mode |= modeSlow
	}
	if g.evidence.recentFailures() {
		mode |= modeRecentFailures
	}
	if g.counters.mode.Load() != mode {
		g.counters.mode.Store(mode)
	}
	g.eventAt = min(g.breaker.nextEvent(), g.limiter.nextEvent())
	if mode&modeSlow != 0 {
		g.eventAt = min(g.eventAt, g.counters.abandoned.nextEvent(g.abandonedPeriod()))
	}
	switch {
	case g.breaker.probesSeparately() && g.breaker.due():
		g.eventAt = 0
	case !g.waiting.any():
	case g.verdictHead(now) <= VerdictProbe:
		g.eventAt = 0 // a queued request should be admitted now
	case g.breaker.due() && !g.waiting.anyWhole() && g.limiter.atFixed(g.counters, false): // a release wakes it
	case g.breaker.due() && !g.waiting.anyWhole():
		g.eventAt = min(g.eventAt, g.breaker.unfinishedAt)
	case g.silence.suspect.on:
		g.eventAt = min(g.eventAt, g.silence.suspect.nextEvent(now), max(g.silence.stall.first()+downAfter(&g.baseline), now+refreshInterval(&g.baseline)))
	case g.limiter.bound && g.breaker.allowsRequests():
		g.eventAt = min(g.eventAt, g.limiter.trickleAt(g.silence.stall.lastResponseAt, overdue(&g.baseline)), g.limiter.blindGrowthAt(&g.baseline))
	}
}
