package policy

import "time"

// What the Guard sees from time to time: the fast paths only count, and every
// so often (refreshInterval, 40 ms where answers take 100 ms) one of them looks at the
// counters.

// tick looks when it is due, unless another goroutine does.
func (g *Guard) tick(now time.Duration) {
	if !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if g.refreshIfDue(now) {
		g.publish(now)
	}
}

// refreshIfDue is called with g.mu held, as all that follows.
func (g *Guard) refreshIfDue(now time.Duration) bool {
	if int64(now) < g.tickAt.Load() {
		return false
	}
	g.refresh(now)
	g.tickAt.Store(int64(now + refreshInterval(&g.baseline)))
	return true
}

// refresh takes in what the fast paths counted.
func (g *Guard) refresh(now time.Duration) {
	fast := g.released.Load() - g.slowReleased
	if fast > g.counted {
		g.evidence.good(now, fast-g.counted)
		g.counted = fast
	}
	g.peak = max(g.peak, g.inFlight())
	if dt := now - g.baseline.foldedAt; dt >= foldEvery {
		g.learn(now, dt)
	}
	if n := g.abandoned.expire(now, g.abandonedBound(now)); n > 0 {
		g.addReleased(n)
	}
	if g.stall.update(now, g.sent(), g.responses()) {
		g.learnPending(now)
	}
	g.checkStall(now)
	g.pace.expire(now)
}

// abandonedBound is how long after it was abandoned an attempt is taken to occupy
// the upstream, when nothing is heard of it: ten times what most take. While
// the breaker is not closed, or nothing is answered under a limit, the upstream may
// do nothing at all, and only a success or a minute says otherwise.
func (g *Guard) abandonedBound(now time.Duration) time.Duration {
	const least, most, shut = time.Second, 30 * time.Second, time.Minute
	if !g.breaker.allowsRequests() || g.limiter.bound && now-g.stall.lastResponseAt > overdue(&g.baseline) {
		return shut
	}
	if !g.baseline.known() {
		return most
	}
	return max(least, min(10*g.baseline.p90, most))
}

// learn takes in the window of latencies that ends now. Only what was seen
// while nothing was wrong says what is usual.
func (g *Guard) learn(now, dt time.Duration) {
	w := &g.window
	g.fresh.drain(w)
	// Little's law, held to what was there: a long poll that ends counts
	// for more than a window.
	peak := g.peak
	atOnce := min(float64(w.sum)/float64(dt), float64(peak))
	g.peak = g.inFlight()
	sent, answered := g.sent()-g.foldedSent, g.responses()-g.foldedResponded
	g.foldedSent, g.foldedResponded = g.foldedSent+sent, g.foldedResponded+answered
	switch {
	case g.breaker.state != BreakerClosed, g.limiter.bound && !g.limiter.baselineShifted:
		g.baseline.foldedAt = now
	case g.limiter.baselineShifted:
		g.limiter.release()
		g.baseline.forget(now)
	case g.overloaded(w, atOnce), g.limiter.overload.seen && w.total < establishedSamples && g.awaitingResponse() >= minInFlightToBind:
		g.baseline.foldedAt = now
		if g.limiter.overload.grows(sent, answered, 0.5*g.baseline.rate*dt.Seconds()) && g.options.ConcurrencyLimit == ConcurrencyLimitAdaptive {
			g.bindLimit(now, peak)
		}
	default:
		g.limiter.overload = overload{}
		g.baseline.fold(w, now, dt, atOnce, g.withinBaseline(w))
	}
}

// learnPending looks, when others were just answered, for requests that are
// overdue: at least those in flight that are more than what was sent lately.
func (g *Guard) learnPending(now time.Duration) {
	if now-g.pendingAt < max(foldEvery, overdue(&g.baseline)) {
		return
	}
	sent := g.sent()
	if g.breaker.state == BreakerClosed {
		g.baseline.sawPending(g.awaitingResponse() - (sent - g.pendingSent))
	}
	g.pendingAt, g.pendingSent = now, sent
}

// slower says whether the quantile q of a window's answers took so many times as
// long as the slow ones usually do (the 90th percentile).
func (g *Guard) slower(w *latencySums, q, times float64) bool {
	return float64(w.quantile(q)) > times*float64(g.baseline.p90)
}

// withinBaseline says whether a window shows concurrency that the upstream bears: half
// of the answers at least took no longer than the slow ones usually do. What
// is seen first is taken to be usual.
func (g *Guard) withinBaseline(w *latencySums) bool {
	return !g.baseline.known() || !g.slower(w, 0.5, 1.25)
}

// overloaded says whether a window looks like overload: even the fast ones of
// its answers took twice as long as the slow ones usually do, and there were
// more at once than was ever seen to go well. Endpoints that differ tenfold do
// not look so, whatever their mix; nor does an upstream that takes more without
// becoming slow.
func (g *Guard) overloaded(w *latencySums, atOnce float64) bool {
	u := &g.baseline
	return u.established() && w.total >= establishedSamples &&
		atOnce >= minInFlightToBind && atOnce > u.concurrency && g.slower(w, 0.2, 2)
}

// finish ends every call that may have changed something: it lets happen what
// is due, makes the fast paths see it, and says what the user has to do.
func (g *Guard) finish(now, eventBefore time.Duration) Signal {
	g.expire(now)
	if g.limiter.bound && g.limiter.mayEnd(now, g.waiting > 0 || !g.hasCapacity()) {
		g.limiter.release()
		g.breaker.close()
	}
	if g.breaker.state == BreakerSlowStart && (!g.limiter.bound || !g.limiter.starting && now >= g.breaker.slowStartAt+slowStartMax) {
		g.breaker.close()
	}
	if g.limiter.bound && g.waiting > 0 && g.breaker.allowsRequests() && !g.suspect.on && !g.hasCapacity() {
		g.limiter.trickle(now, g.stall.lastResponseAt, overdue(&g.baseline), g.inFlight())
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

// slowStartMax is when a slow start is taken to be over, unless its slow start still goes
// on: who waits then waits for an upstream that is up and busy.
const slowStartMax = 5 * time.Second

// expire lets happen what is due by time alone.
func (g *Guard) expire(now time.Duration) {
	g.breaker.expire(now)
	g.limiter.growBlindly(now, &g.baseline)
	g.suspect.expire(now)
}

// publish makes the state seen by the fast paths and works out the next event.
func (g *Guard) publish(now time.Duration) {
	mode := uint32(0)
	if g.limitBound() || !g.breaker.allowsRequests() || g.suspect.on || g.waiting > 0 {
		mode |= modeSlow
	}
	if g.evidence.recentFailures() || g.pace.on || now < g.connections.watchedTo {
		mode |= modeRecentFailures
	}
	if g.mode.Load() != mode {
		g.mode.Store(mode)
	}
	g.eventAt = min(g.breaker.nextEvent(), g.limiter.nextEvent())
	if mode&modeSlow != 0 {
		g.eventAt = min(g.eventAt, g.abandoned.nextEvent(g.abandonedBound(now)))
	}
	switch {
	case g.probesSeparately() && g.breaker.due():
		g.eventAt = 0
	case g.waiting == 0:
	case g.verdictHead(now) <= VerdictProbe:
		g.eventAt = 0 // somebody should be admitted now
	case g.breaker.due() && g.waiting == g.waitingUnfinished:
		g.eventAt = min(g.eventAt, g.breaker.unfinishedAt)
	case g.suspect.on:
		g.eventAt = min(g.eventAt, g.suspect.nextEvent(), max(g.stall.first()+downAfter(&g.baseline), now+refreshInterval(&g.baseline)))
	case g.limiter.bound && g.breaker.allowsRequests():
		g.eventAt = min(g.eventAt, g.limiter.trickleAt(g.stall.lastResponseAt, overdue(&g.baseline)), g.limiter.blindGrowthAt(&g.baseline))
	}
}
