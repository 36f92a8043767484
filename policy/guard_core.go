package policy

import "time"

// What follows is called with g.mu held.

// inFlight is how many permits are taken. A place that AcquireFast takes back at
// once may be counted for an instant, so it is never too low.
func (g *Guard) inFlight() int64 {
	left := g.released.Load() // first: a place taken in between is then counted, never missed
	return g.acquired.Load() - left
}

// limitBound says whether the permits are limited at all.
func (g *Guard) limitBound() bool {
	return g.limiter.bound || g.options.ConcurrencyLimit == ConcurrencyLimitFixed
}

// hasCapacity says whether the limits leave a place free.
func (g *Guard) hasCapacity() bool {
	return !g.atFixedLimit() && (!g.limiter.bound || g.limiter.hasCapacity(g.inFlight()))
}

// atFixedLimit says whether a fixed limit is reached.
func (g *Guard) atFixedLimit() bool {
	return g.options.ConcurrencyLimit == ConcurrencyLimitFixed && g.inFlight() >= int64(g.options.FixedLimit)
}

// probesSeparately reports whether the user takes the probe that is due, with Probe.
func (g *Guard) probesSeparately() bool {
	return g.options.ActiveProbe || g.options.ConnectProbe && g.breaker.why.connecting()
}

// verdictHead is what the head of the queue is told now: while the breaker is not closed, the
// first of those whose request is whole, if there is one.
func (g *Guard) verdictHead(now time.Duration) Verdict {
	return g.verdict(now, true, g.waiting > g.waitingUnfinished)
}

// verdict is what an attempt is told now. The head of the queue goes before
// those who come.
func (g *Guard) verdict(now time.Duration, head, whole bool) Verdict {
	first := head || g.waiting == 0
	if !g.breaker.allowsRequests() {
		if !first {
			return VerdictBreakerOpen
		}
		return g.openVerdict(now, whole)
	}
	if g.suspect.on {
		if first && g.suspect.mayAdmit && !g.atFixedLimit() {
			return VerdictGo
		}
		if g.options.NoBreaker {
			return VerdictAtLimit
		}
		return VerdictSuspect
	}
	if first && g.hasCapacity() || !g.limitBound() {
		return VerdictGo
	}
	if g.breaker.state == BreakerSlowStart {
		return VerdictBreakerOpen
	}
	return VerdictAtLimit
}

// issuePermit takes a permit after a verdict that gives one.
func (g *Guard) issuePermit(now time.Duration, v Verdict) Permit {
	g.acquired.Add(1)
	p := Permit{at: now, kind: permitTaken}
	switch {
	case v == VerdictProbe:
		p.probe = g.breaker.beginProbe(now, g.options.Rand)
	case !g.breaker.allowsRequests():
		g.breaker.unfinishedAt = now + g.breaker.hungFor(g.options.Rand)
	}
	g.suspect.admitted(now)
	g.publish(now)
	return p
}

// acquire is Enter under the lock.
func (g *Guard) acquire(now time.Duration, r Request) (Permit, Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refreshIfDue(now)
	g.expire(now)
	v := g.verdict(now, false, !r.Unfinished)
	if v == VerdictSuspect && g.admitsTrial(now, r) {
		v, g.suspect.trialUsed = VerdictGo, true
	}
	if v == VerdictGo && g.suspect.on {
		g.urls.recordPending(g.stall.lastResponseAt, now, now+overdue(&g.baseline), r.Key)
	}
	if v <= VerdictProbe {
		return g.issuePermit(now, v), v
	}
	g.addWaiting(1, r)
	if v != VerdictSuspect {
		g.limiter.recordWait()
	}
	g.publish(now)
	return Permit{}, v
}

// addWaiting counts n more that wait, with a request like r.
func (g *Guard) addWaiting(n int, r Request) {
	g.waiting = max(0, g.waiting+n)
	if r.Unfinished {
		g.waitingUnfinished += n
	}
	g.waitingUnfinished = max(0, min(g.waitingUnfinished, g.waiting))
}

// undoAcquire balances the books after AcquireFast took a place back.
func (g *Guard) undoAcquire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slowReleased++
	g.unsent++
	g.released.Add(1)
}

// release is Leave under the lock.
func (g *Guard) release(p Permit, now time.Duration, e AttemptEnd) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.returnPermit(p, e) {
		return 0
	}
	before := g.eventAt
	g.refreshIfDue(now)
	g.recordEnd(p, now, e)
	return g.finish(now, before)
}

// returnPermit counts a place as left, unless it was freed before.
func (g *Guard) returnPermit(p Permit, e AttemptEnd) bool {
	switch {
	case p.kind == permitNone:
		return false
	case p.kind == permitAbandoned && !g.abandoned.release(p.batch):
	default:
		g.slowReleased++
		g.released.Add(1)
	}
	switch e.Kind {
	case Responded:
		g.slowResponded++
	case Unsent, Connected:
		g.unsent++
		g.stall.unsent(p.at)
	}
	return true
}

// addReleased counts permits of abandonedPermits as left.
func (g *Guard) addReleased(n int64) {
	g.slowReleased += n
	g.released.Add(n)
}

// recordEnd learns from the end of an attempt.
func (g *Guard) recordEnd(p Permit, now time.Duration, e AttemptEnd) {
	g.limiter.recordRelease(p.at)
	g.responseSeen(e)
	if !g.breaker.allowsRequests() {
		g.recordEndNotClosed(p, now, e)
		return
	}
	switch {
	case e.Kind == Unsent || e.Kind == Connected:
	case g.isSuccess(e):
		g.recordSuccess(p, now, e)
	case p.kind == permitAbandoned: // it failed already, when it was abandoned
	case (e.Kind == Refused || e.Kind == DialFailed) && !g.accepts(p, now, e):
		g.tripBreaker(now, g.openReason(e))
	default:
		g.recordFailure(p, now, e)
	}
}

// recordSuccess counts a good response while the breaker is closed or in slow start.
func (g *Guard) recordSuccess(p Permit, now time.Duration, e AttemptEnd) {
	g.connections.servedAt = max(g.connections.servedAt, p.at)
	g.evidence.good(now, 1)
	g.lossBurst.recordResponse(p.at)
	g.urls.recordResponse(now, e.Key)
	if g.limiter.bound {
		g.limiter.recordEnd(now, p.at, true, &g.baseline)
	}
	if g.breaker.state == BreakerClosed {
		g.fresh.add(now - p.at)
	}
	g.recordRecovery(p, now)
	g.recordPace(p, now)
}

// recordFailure counts a failure while the breaker is closed or in slow start.
func (g *Guard) recordFailure(p Permit, now time.Duration, e AttemptEnd) {
	g.evidence.bad(now, e)
	g.urls.recordFailure(e.Key)
	if g.limiter.bound {
		g.limiter.recordEnd(now, p.at, false, &g.baseline)
	}
	switch {
	case e.Kind == Reset && g.lossBurst.recordLoss(p.at, now, g.inFlight()):
		g.tripBreaker(now, OpenedByLost)
	case g.evidence.oneKey() && g.urls.anotherResponds(now, func(key uint32) bool { return key == g.evidence.topKey }):
	case g.evidence.upstreamFails():
		g.tripBreaker(now, g.openReason(e))
	}
}

// recordAbandoned learns from an attempt that is no longer waited for. A client
// who leaves early is no evidence.
func (g *Guard) recordAbandoned(p Permit, now time.Duration, e AttemptEnd) {
	age := now - p.at
	late := e.Kind == TimedOut || age >= overdue(&g.baseline)
	if late && p.at >= g.stall.since() {
		g.stall.leftLate++
	}
	if late && p.at >= g.stall.lastResponseAt {
		g.urls.recordPending(g.stall.lastResponseAt, p.at, now, e.Key)
	}
	if e.Closed {
		g.unsent++ // its response would not be heard, so it is not missed
		g.stall.unsent(p.at)
		g.stall.closed(p.at, age, &g.baseline)
	}
	switch {
	case late && g.breaker.allowsRequests():
		g.recordFailure(p, now, e)
	case late:
		g.breaker.clientLeftLate(g.options.Rand)
	}
	if !g.breaker.allowsRequests() && e.Closed && p.probe != 0 && p.probe == g.breaker.probe {
		g.breaker.probeLost(now, g.options.Rand)
	}
}

// recordEndNotClosed learns from the end of an attempt while the breaker is not closed.
func (g *Guard) recordEndNotClosed(p Permit, now time.Duration, e AttemptEnd) {
	probe := p.probe != 0 && p.probe == g.breaker.probe
	switch {
	case e.Kind == Connected && g.breaker.why.connecting():
		g.beginSlowStart(now, true)
	case g.isSuccess(e):
		// What was sent before tells nothing of an upstream that refuses
		// connections or fails, since it may be the last that went well;
		// but of a silent one any response does.
		if probe || p.at > g.breaker.openedAt || g.breaker.why == OpenedByStall {
			if g.breaker.why == OpenedByStall {
				g.baseline.sawPause(now - g.stall.since())
			}
			g.beginSlowStart(now, probe || p.at > g.breaker.openedAt)
			g.recordRecovery(p, now)
			g.recordPace(p, now)
		}
	case !probe:
		if e.Kind == Reset && g.breaker.why == OpenedByStall && g.breaker.probe != 0 {
			g.breaker.probeFailed(now, OpenedByStall, g.options.Rand)
		}
	case e.Kind == Connected, e.Kind == Unsent:
		g.breaker.discardProbe()
	default:
		g.breaker.probeFailed(now, g.openReason(e), g.options.Rand)
	}
}

// openReason is the evidence of a failure that opens the breaker or keeps it so. What
// is named here is what closes it again (see recordEndNotClosed and Accepted).
func (g *Guard) openReason(e AttemptEnd) OpenedBy {
	switch {
	case e.Kind == Refused:
		return OpenedByRefused
	case e.Kind == DialFailed:
		return OpenedByDial
	case e.Kind != Responded && !g.breaker.allowsRequests() && g.breaker.why == OpenedByStall,
		g.breaker.allowsRequests() && g.evidence.mostlyUnanswered():
		return OpenedByStall
	}
	return OpenedByFailing
}

// tripBreaker opens the breaker; without one, overload is all that can be seen in it.
func (g *Guard) tripBreaker(now time.Duration, why OpenedBy) {
	if g.options.NoBreaker {
		if g.options.ConcurrencyLimit == ConcurrencyLimitAdaptive && !g.limiter.bound && (why == OpenedByFailing || why == OpenedByStall) {
			g.bindLimit(now, g.inFlight())
		}
		return
	}
	if g.breaker.state == BreakerClosed {
		g.recovery = recoveryLatencies{}
	}
	g.breaker.trip(now, why, g.options.Rand)
	g.suspect, g.lossBurst = suspectState{}, lossBurst{}
	g.limiter.release()
	g.publish(now)
}

// bindLimit makes the limit bind.
func (g *Guard) bindLimit(now time.Duration, atOnce int64) {
	g.mode.Store(modeSlow)
	g.limiter.bind(now, atOnce)
}

// beginSlowStart begins the slow start. byProbe says that what was sent after the breaker opened
// was answered before what was sent earlier: then those are lost, or long polls,
// and do not count. Otherwise the upstream is working them off, so they do.
func (g *Guard) beginSlowStart(now time.Duration, byProbe bool) {
	untold := g.breaker.why != OpenedByStall
	g.breaker.beginSlowStart(now)
	g.recovery.begin(now)
	g.addReleased(g.abandoned.freeAll())
	g.evidence = evidence{}
	old := g.inFlight()
	if !byProbe {
		old = min(old, int64(g.baseline.pending))
	}
	g.limiter.start(now, old, &g.baseline)
	g.limiter.noResponseYet = untold
	g.stall.reset(now, g.sent(), g.responses())
}

// responses is how many attempts were answered so far, sent how many were sent.
func (g *Guard) responses() int64 { return g.released.Load() - g.slowReleased + g.slowResponded }
func (g *Guard) sent() int64      { return g.acquired.Load() - g.unsent - g.sending.Load() }

// respondedSince says whether any attempt was answered after t, as finely as
// looks go. Connections that are in use may work on while new ones fail.
func (g *Guard) respondedSince(t, now time.Duration) bool {
	g.refresh(now)
	return g.stall.lastResponseAt > t
}
