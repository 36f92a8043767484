package policy

import "time"

// What follows is called with g.mu held.

// inFlight is how many places are taken. A place that EnterFast takes back at
// once may be counted for an instant, so it is never too low.
func (g *Guard) inFlight() int64 {
	left := g.left.Load() // first: a place taken in between is then counted, never missed
	return g.entered.Load() - left
}

// bound says whether the places are limited at all.
func (g *Guard) bound() bool { return g.limiter.bound || g.options.Limit == LimitFixed }

// room says whether the limits leave a place free.
func (g *Guard) room() bool {
	return !g.full() && (!g.limiter.bound || g.limiter.room(g.inFlight()))
}

// full says whether a fixed limit is reached.
func (g *Guard) full() bool {
	return g.options.Limit == LimitFixed && g.inFlight() >= int64(g.options.Fixed)
}

// ownProbe reports whether the user takes the probe that is due, with Probe.
func (g *Guard) ownProbe() bool {
	return g.options.OwnProbe || g.options.Connects && g.gate.why.connecting()
}

// verdictHead is what the head of the line is told now: while the gate is not open, the
// first of those whose request is whole, if there is one.
func (g *Guard) verdictHead(now time.Duration) Verdict {
	return g.verdict(now, true, g.waiting > g.waitingParts)
}

// verdict is what an attempt is told now. The head of the line goes before
// those who come.
func (g *Guard) verdict(now time.Duration, head, whole bool) Verdict {
	first := head || g.waiting == 0
	if !g.gate.passing() {
		if !first {
			return VerdictHold
		}
		return g.shutVerdict(now, whole)
	}
	if g.doubt.on {
		if first && g.doubt.free && !g.full() {
			return VerdictGo
		}
		if g.options.NoGate {
			return VerdictQueue
		}
		return VerdictDoubt
	}
	if first && g.room() || !g.bound() {
		return VerdictGo
	}
	if g.gate.state == GateRamp {
		return VerdictHold
	}
	return VerdictQueue
}

// take takes a place after a verdict that gives one.
func (g *Guard) take(now time.Duration, v Verdict) Place {
	g.entered.Add(1)
	p := Place{at: now, kind: placeTaken}
	switch {
	case v == VerdictProbe:
		p.probe = g.gate.begin(now, g.options.Rand)
	case !g.gate.passing():
		g.gate.unfinishedAt = now + g.gate.hungFor(g.options.Rand)
	}
	g.doubt.let(now)
	g.publish(now)
	return p
}

// enter is Enter under the lock.
func (g *Guard) enter(now time.Duration, r Request) (Place, Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lookIfDue(now)
	g.expire(now)
	v := g.verdict(now, false, !r.Unfinished)
	if v == VerdictDoubt && g.tries(now, r) {
		v, g.doubt.tried = VerdictGo, true
	}
	if v == VerdictGo && g.doubt.on {
		g.urls.wentSilent(g.silence.brokenAt, now, now+overdue(&g.usual), r.Key)
	}
	if !g.gate.passing() {
		g.turns.wantedAt = now
	}
	if v <= VerdictProbe {
		return g.take(now, v), v
	}
	g.waits(1, r)
	if v != VerdictDoubt {
		g.limiter.waited()
	}
	g.publish(now)
	return Place{}, v
}

// waits counts n more that wait, with a request like r.
func (g *Guard) waits(n int, r Request) {
	g.waiting = max(0, g.waiting+n)
	if r.Unfinished {
		g.waitingParts += n
	}
	g.waitingParts = max(0, min(g.waitingParts, g.waiting))
}

// undone balances the books after EnterFast took a place back.
func (g *Guard) undone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slowLeft++
	g.unsent++
	g.left.Add(1)
}

// leave is Leave under the lock.
func (g *Guard) leave(p Place, now time.Duration, e Ending) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.giveBack(p, e) {
		return 0
	}
	before := g.eventAt
	g.lookIfDue(now)
	g.judge(p, now, e)
	return g.settle(now, before)
}

// giveBack counts a place as left, unless it was freed before.
func (g *Guard) giveBack(p Place, e Ending) bool {
	switch {
	case p.kind == placeNone:
		return false
	case p.kind == placeAbandoned && !g.lost.giveBack(p.batch):
	default:
		g.slowLeft++
		g.left.Add(1)
	}
	switch e.Kind {
	case Answered:
		g.slowAnswered++
	case Unsent, Connected:
		g.unsent++
		g.silence.unsent(p.at)
	}
	return true
}

// freed counts places of lostPlaces as left.
func (g *Guard) freed(n int64) {
	g.slowLeft += n
	g.left.Add(n)
}

// judge learns from the end of an attempt.
func (g *Guard) judge(p Place, now time.Duration, e Ending) {
	g.limiter.left(p.at)
	g.heard(e)
	if !g.gate.passing() {
		g.judgeShut(p, now, e)
		return
	}
	switch {
	case e.Kind == Unsent || e.Kind == Connected:
	case g.answeredWell(e):
		g.wentWell(p, now, e)
	case p.kind == placeAbandoned: // it failed already, when it was abandoned
	case (e.Kind == Refused || e.Kind == DialFailed) && !g.accepts(p, now, e):
		g.shut(now, g.blame(e))
	default:
		g.wentWrong(p, now, e)
	}
}

// wentWell counts a good answer while the gate is open or opening.
func (g *Guard) wentWell(p Place, now time.Duration, e Ending) {
	g.connections.servedAt = max(g.connections.servedAt, p.at)
	g.evidence.good(now, 1)
	g.burst.answered(p.at)
	g.urls.wentWell(now, e.Key)
	if g.limiter.bound {
		g.limiter.ended(now, p.at, true, &g.usual)
	}
	if g.gate.state == GateOpen {
		g.fresh.add(now - p.at)
	}
	g.cameBack(p, now)
	g.keptPace(p, now)
}

// wentWrong counts a failure while the gate is open or opening.
func (g *Guard) wentWrong(p Place, now time.Duration, e Ending) {
	g.evidence.bad(now, e)
	g.urls.wentWrong(e.Key)
	if g.limiter.bound {
		g.limiter.ended(now, p.at, false, &g.usual)
	}
	switch {
	case e.Kind == Reset && g.burst.lose(p.at, now, g.inFlight()):
		g.shut(now, ClosedByLost)
	case g.evidence.oneKey() && g.urls.another(now, func(key uint32) bool { return key == g.evidence.suspect }):
	case g.evidence.condemns():
		g.shut(now, g.blame(e))
	}
}

// judgeAbandoned learns from an attempt that is no longer waited for. A caller
// who leaves early is no evidence.
func (g *Guard) judgeAbandoned(p Place, now time.Duration, e Ending) {
	age := now - p.at
	late := e.Kind == TimedOut || age >= overdue(&g.usual)
	if late && p.at >= g.silence.since() {
		g.silence.left++
	}
	if late && p.at >= g.silence.brokenAt {
		g.urls.wentSilent(g.silence.brokenAt, p.at, now, e.Key)
	}
	if e.Closed {
		g.unsent++ // its answer would not be heard, so it is not missed
		g.silence.unsent(p.at)
		g.silence.lost(p.at, age, &g.usual)
	}
	switch {
	case late && g.gate.passing():
		g.wentWrong(p, now, e)
	case late:
		g.gate.lostPatience(g.options.Rand)
	}
	if !g.gate.passing() && e.Closed && p.probe != 0 && p.probe == g.gate.probe {
		g.gate.lose(now, g.options.Rand)
	}
}

// judgeShut learns from the end of an attempt while the gate is not open.
func (g *Guard) judgeShut(p Place, now time.Duration, e Ending) {
	probe := p.probe != 0 && p.probe == g.gate.probe
	switch {
	case e.Kind == Connected && g.gate.why.connecting():
		g.reopen(now, true)
	case g.answeredWell(e):
		// What was sent before tells nothing of an upstream that refuses
		// connections or fails, since it may be the last that went well;
		// but of a silent one any answer does.
		if probe || p.at > g.gate.closedAt || g.gate.why == ClosedByStall {
			if g.gate.why == ClosedByStall {
				g.usual.sawPause(now - g.silence.since())
			}
			g.reopen(now, probe || p.at > g.gate.closedAt)
			g.cameBack(p, now)
			g.keptPace(p, now)
		}
	case !probe:
		if e.Kind == Reset && g.gate.why == ClosedByStall && g.gate.probe != 0 {
			g.gate.fail(now, ClosedByStall, g.options.Rand)
		}
	case e.Kind == Connected, e.Kind == Unsent:
		g.gate.waive()
	default:
		g.gate.fail(now, g.blame(e), g.options.Rand)
	}
}

// blame is the evidence of a failure that closes the gate or keeps it so. What
// is named here is what opens it again (see judgeShut and Accepted).
func (g *Guard) blame(e Ending) ClosedBy {
	switch {
	case e.Kind == Refused:
		return ClosedByRefused
	case e.Kind == DialFailed:
		return ClosedByDial
	case e.Kind != Answered && !g.gate.passing() && g.gate.why == ClosedByStall,
		g.gate.passing() && g.evidence.mostlySilent():
		return ClosedByStall
	}
	return ClosedByFailing
}

// shut closes the gate; without one, overload is all that can be seen in it.
func (g *Guard) shut(now time.Duration, why ClosedBy) {
	if g.options.NoGate {
		if g.options.Limit == LimitAdaptive && !g.limiter.bound && (why == ClosedByFailing || why == ClosedByStall) {
			g.bind(now, g.inFlight())
		}
		return
	}
	if g.gate.state == GateOpen {
		g.comeback = comeback{}
	}
	g.gate.close(now, why, g.options.Rand)
	g.doubt, g.burst = doubt{}, burst{}
	g.limiter.release()
	g.publish(now)
}

// bind makes the limit bind.
func (g *Guard) bind(now time.Duration, atOnce int64) {
	g.mode.Store(modeSlow)
	g.limiter.bind(now, atOnce)
}

// reopen begins the ramp. byProbe says that what was sent after the gate closed
// was answered before what was sent earlier: then those are lost, or long polls,
// and do not count. Otherwise the upstream is working them off, so they do.
func (g *Guard) reopen(now time.Duration, byProbe bool) {
	untold := g.gate.why != ClosedByStall
	g.gate.reopen(now)
	g.comeback.reopened(now)
	g.freed(g.lost.freeAll())
	g.evidence = evidence{}
	old := g.inFlight()
	if !byProbe {
		old = min(old, int64(g.usual.pending))
	}
	g.limiter.start(now, old, &g.usual)
	g.limiter.untold = untold
	g.silence.reset(now, g.sent(), g.answers())
}

// answers is how many attempts were answered so far, sent how many were sent.
func (g *Guard) answers() int64 { return g.left.Load() - g.slowLeft + g.slowAnswered }
func (g *Guard) sent() int64    { return g.entered.Load() - g.unsent - g.sending.Load() }

// answeredSince says whether any attempt was answered after t, as finely as
// looks go. Connections that are in use may work on while new ones fail.
func (g *Guard) answeredSince(t, now time.Duration) bool {
	g.look(now)
	return g.silence.brokenAt > t
}
