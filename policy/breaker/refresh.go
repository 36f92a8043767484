package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// The fast paths only count. Every refreshInterval (about 40 ms if responses take 100 ms)
// one of them reads the counters.

// tick refreshes the state if that is due, unless another goroutine holds the lock.
func (g *Guard) tick(now time.Duration) {
	if !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if g.core.refreshIfDue(now) {
		g.core.publish(now)
	}
}

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
	g.counters.expireAbandoned(now, g.abandonedBound(now))
	if g.silence.stall.update(now, g.counters.sent(), g.counters.responses()) {
		g.learner.pending(now, g.counters, &g.baseline, g.breaker.state == Closed)
	}
	g.checkStall(now)
}

// abandonedBound returns how long an abandoned attempt counts as in flight if nothing is
// heard of it: ten times the usual 90th percentile. While the breaker is not closed, or
// responses are overdue under a limit, the upstream may make no progress at all. Then only
// a success or a minute frees it.
func (g *core) abandonedBound(now time.Duration) time.Duration {
	const least, most, openBound = time.Second, 30 * time.Second, time.Minute
	if !g.breaker.allowsRequests() || g.limiter.bound && now-g.silence.stall.lastResponseAt > overdue(&g.baseline) {
		return openBound
	}
	if !g.baseline.Known() {
		return most
	}
	return max(least, min(10*g.baseline.P90, most))
}

// finish ends every call that may have changed something. It applies what is due, publishes
// the state to the fast paths, and returns what the caller has to do.
func (g *core) finish(now, eventBefore time.Duration) Signal {
	g.expire(now)
	if g.limiter.bound && g.limiter.mayEnd(now, g.waiting.any() || !g.limiter.allows(g.counters)) {
		g.limiter.release()
		g.breaker.close()
	}
	if g.breaker.state == SlowStart && (!g.limiter.bound || !g.limiter.starting && now >= g.breaker.slowStartAt+slowStartMax) {
		g.breaker.close()
	}
	if g.limiter.bound && g.waiting.any() && g.breaker.allowsRequests() && !g.silence.suspect.on && !g.limiter.allows(g.counters) {
		g.limiter.trickle(now, g.silence.stall.lastResponseAt, overdue(&g.baseline), g.counters.inFlight())
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

// expire applies what is due by time alone.
func (g *core) expire(now time.Duration) {
	g.breaker.expire(now)
	g.limiter.growBlindly(now, &g.baseline)
	g.silence.suspect.expire(now)
}

// publish makes the state visible to the fast paths and computes the next event.
func (g *core) publish(now time.Duration) {
	mode := uint32(0)
	if g.limiter.limited() || !g.breaker.allowsRequests() || g.silence.suspect.on || g.waiting.any() {
		mode |= modeSlow
	}
	if g.evidence.recentFailures() || now < g.connections.watchedTo {
		mode |= modeRecentFailures
	}
	if g.counters.mode.Load() != mode {
		g.counters.mode.Store(mode)
	}
	g.eventAt = min(g.breaker.nextEvent(), g.limiter.nextEvent())
	if mode&modeSlow != 0 {
		g.eventAt = min(g.eventAt, g.counters.abandoned.nextEvent(g.abandonedBound(now)))
	}
	switch {
	case g.breaker.probesSeparately() && g.breaker.due():
		g.eventAt = 0
	case !g.waiting.any():
	case g.verdictHead(now) <= VerdictProbe:
		g.eventAt = 0 // a queued request should be admitted now
	case g.breaker.due() && !g.waiting.anyWhole():
		g.eventAt = min(g.eventAt, g.breaker.unfinishedAt)
	case g.silence.suspect.on:
		g.eventAt = min(g.eventAt, g.silence.suspect.nextEvent(), max(g.silence.stall.first()+downAfter(&g.baseline), now+refreshInterval(&g.baseline)))
	case g.limiter.bound && g.breaker.allowsRequests():
		g.eventAt = min(g.eventAt, g.limiter.trickleAt(g.silence.stall.lastResponseAt, overdue(&g.baseline)), g.limiter.blindGrowthAt(&g.baseline))
	}
}
