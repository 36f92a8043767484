package policy

import "time"

// What the Guard sees from time to time: the fast paths only count, and every
// so often (lookEvery, 40 ms where answers take 100 ms) one of them looks at the
// counters.

// tick looks when it is due, unless another goroutine does.
func (g *Guard) tick(now time.Duration) {
	if !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if g.lookIfDue(now) {
		g.publish(now)
	}
}

// lookIfDue is called with g.mu held, as all that follows.
func (g *Guard) lookIfDue(now time.Duration) bool {
	if int64(now) < g.tickAt.Load() {
		return false
	}
	g.look(now)
	g.tickAt.Store(int64(now + lookEvery(&g.usual)))
	return true
}

// look takes in what the fast paths counted.
func (g *Guard) look(now time.Duration) {
	fast := g.left.Load() - g.slowLeft
	if fast > g.counted {
		g.evidence.good(now, fast-g.counted)
		g.counted = fast
	}
	g.peak = max(g.peak, g.inFlight())
	if dt := now - g.usual.foldedAt; dt >= foldEvery {
		g.learn(now, dt)
	}
	if n := g.lost.expire(now, g.lostBound(now)); n > 0 {
		g.freed(n)
	}
	if g.silence.look(now, g.sent(), g.answers()) {
		g.learnPending(now)
	}
	g.judgeSilence(now)
	g.pace.expire(now)
}

// lostBound is how long after it was abandoned an attempt is taken to occupy
// the upstream, when nothing is heard of it: ten times what most take. While
// the gate is not open, or nothing is answered under a limit, the upstream may
// do nothing at all, and only a success or a minute says otherwise.
func (g *Guard) lostBound(now time.Duration) time.Duration {
	const least, most, shut = time.Second, 30 * time.Second, time.Minute
	if !g.gate.passing() || g.limiter.bound && now-g.silence.brokenAt > overdue(&g.usual) {
		return shut
	}
	if !g.usual.known() {
		return most
	}
	return max(least, min(10*g.usual.p90, most))
}

// learn takes in the window of latencies that ends now. Only what was seen
// while nothing was wrong says what is usual.
func (g *Guard) learn(now, dt time.Duration) {
	w := &g.window
	g.fresh.drain(w)
	// Little's law, held to what was there: a long poll that ends counts
	// for more than a window.
	peak := g.peak
	atOnce := min(float64(w.busy)/float64(dt), float64(peak))
	g.peak = g.inFlight()
	sent, answered := g.sent()-g.foldedSent, g.answers()-g.foldedAnswered
	g.foldedSent, g.foldedAnswered = g.foldedSent+sent, g.foldedAnswered+answered
	switch {
	case g.gate.state != GateOpen, g.limiter.bound && !g.limiter.innocent:
		g.usual.foldedAt = now
	case g.limiter.innocent:
		g.limiter.release()
		g.usual.forget(now)
	case g.overloaded(w, atOnce), g.limiter.overload.seen && w.total < wellFrom && g.answerable() >= bindLeast:
		g.usual.foldedAt = now
		if g.limiter.overload.grows(sent, answered, 0.5*g.usual.rate*dt.Seconds()) && g.options.Limit == LimitAdaptive {
			g.bind(now, peak)
		}
	default:
		g.limiter.overload = overload{}
		g.usual.fold(w, now, dt, atOnce, g.easy(w))
	}
}

// learnPending looks, when others were just answered, for requests that are
// overdue: at least those under way that are more than what was sent lately.
func (g *Guard) learnPending(now time.Duration) {
	if now-g.pendingAt < max(foldEvery, overdue(&g.usual)) {
		return
	}
	sent := g.sent()
	if g.gate.state == GateOpen {
		g.usual.sawPending(g.answerable() - (sent - g.pendingSent))
	}
	g.pendingAt, g.pendingSent = now, sent
}

// slower says whether the quantile q of a window's answers took so many times as
// long as the slow ones usually do (the 90th percentile).
func (g *Guard) slower(w *latencySums, q, times float64) bool {
	return float64(w.quantile(q)) > times*float64(g.usual.p90)
}

// easy says whether a window shows concurrency that the upstream bears: half
// of the answers at least took no longer than the slow ones usually do. What
// is seen first is taken to be usual.
func (g *Guard) easy(w *latencySums) bool {
	return !g.usual.known() || !g.slower(w, 0.5, 1.25)
}

// overloaded says whether a window looks like overload: even the fast ones of
// its answers took twice as long as the slow ones usually do, and there were
// more at once than was ever seen to go well. Endpoints that differ tenfold do
// not look so, whatever their mix; nor does an upstream that takes more without
// becoming slow.
func (g *Guard) overloaded(w *latencySums, atOnce float64) bool {
	u := &g.usual
	return u.well() && w.total >= wellFrom &&
		atOnce >= bindLeast && atOnce > u.concurrency && g.slower(w, 0.2, 2)
}

// settle ends every call that may have changed something: it lets happen what
// is due, makes the fast paths see it, and says what the user has to do.
func (g *Guard) settle(now, eventBefore time.Duration) Signal {
	g.expire(now)
	if g.limiter.bound && g.limiter.rest(now, g.waiting > 0 || !g.room()) {
		g.limiter.release()
		g.gate.opened()
	}
	if g.gate.state == GateRamp && (!g.limiter.bound || !g.limiter.starting && now >= g.gate.rampedAt+rampMost) {
		g.gate.opened()
	}
	if g.limiter.bound && g.waiting > 0 && g.gate.passing() && !g.doubt.on && !g.room() {
		g.limiter.trickle(now, g.silence.brokenAt, overdue(&g.usual), g.inFlight())
	}
	g.publish(now)
	var s Signal
	if g.waiting > 0 && g.verdictHead(now) <= VerdictProbe {
		s |= SignalWake
	}
	if g.eventAt != eventBefore {
		s |= SignalEvent
	}
	return s
}

// rampMost is when a ramp is taken to be over, unless its slow start still goes
// on: who waits then waits for an upstream that is up and busy.
const rampMost = 5 * time.Second

// expire lets happen what is due by time alone.
func (g *Guard) expire(now time.Duration) {
	g.gate.expire(now)
	g.limiter.growUntold(now, &g.usual)
	g.doubt.expire(now)
}

// publish makes the state seen by the fast paths and works out the next event.
func (g *Guard) publish(now time.Duration) {
	mode := uint32(0)
	if g.bound() || !g.gate.passing() || g.doubt.on || g.waiting > 0 {
		mode |= modeSlow
	}
	if g.evidence.suspicious() || g.pace.on || now < g.connections.watchedTo {
		mode |= modeSuspect
	}
	if g.mode.Load() != mode {
		g.mode.Store(mode)
	}
	g.eventAt = min(g.gate.event(), g.limiter.event())
	if mode&modeSlow != 0 {
		g.eventAt = min(g.eventAt, g.lost.event(g.lostBound(now)))
	}
	switch {
	case g.ownProbe() && g.gate.due():
		g.eventAt = 0
	case g.waiting == 0:
	case g.verdictHead(now) <= VerdictProbe:
		g.eventAt = 0 // somebody should be admitted now
	case g.gate.due() && g.waiting == g.waitingParts:
		g.eventAt = min(g.eventAt, g.gate.unfinishedAt)
	case g.doubt.on:
		g.eventAt = min(g.eventAt, g.doubt.event(), max(g.silence.first()+downAfter(&g.usual), now+lookEvery(&g.usual)))
	case g.limiter.bound && g.gate.passing():
		g.eventAt = min(g.eventAt, g.limiter.trickleAt(g.silence.brokenAt, overdue(&g.usual)), g.limiter.untoldAt(&g.usual))
	}
}
