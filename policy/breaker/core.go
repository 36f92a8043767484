package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// core holds the rules of a Guard: what moves the window. All its methods require Guard.mu.
//
//	open --silence--> doubt --confirmed--> shut --proof--> start --latency--> seek --nobody waits--> open
//	 |                  |                   ^               ^ |                 |
//	 |<----response-----+                   |               | |                 |
//	 +-- failures ------+------------------>+<--------------|-+-- the same, ----+
//	 |                                                      |     or silence    |
//	 +-- far more than ever went well is in flight, --------+<- what is usual --+
//	 |   and it is overdue, or clients leave                   is learnt anew   |
//	 +-- more comes than is answered, slowly ---------------------------------->+
//
// Where connections had failed, start begins blind. What the metrics call the state of the breaker is
// read off the window: closed (open, doubt, and start and seek after overload), open or half open
// (shut), slow start (blind, start after an outage, and seek for a while after it).
type core struct {
	counters *counters // of the Guard
	options  *Options

	window      window
	pace        pace
	evidence    evidence
	connections connections
	silence     silence
	urls        urls
	baseline    latency.Baseline
	learner     learner
	waiting     waiting
	eventAt     time.Duration // see Guard.NextEvent
}

// state returns the state of the breaker.
func (g *core) state() State {
	switch {
	case g.window.phase == shut && (g.pace.due() || g.pace.probing()):
		return HalfOpen
	case g.window.phase == shut:
		return Open
	case g.window.recovering():
		return SlowStart
	}
	return Closed
}

// end records the end of an attempt. It returns SignalDown if it failed while the upstream is
// known to be down.
func (g *core) end(p Permit, now time.Duration, e AttemptEnd) Signal {
	if p.kind == permitCheck {
		g.checked(p, now, e)
		return 0
	}
	if e.CutShort {
		e.Kind = Unsent
	}
	g.counters.release(p)
	if e.Kind == Responded {
		g.silence.end(now, &g.counters.generations)
		g.answered(p.at, now)
	}
	if g.window.phase != shut && g.isProbe(p) {
		g.pace.discard()
	}
	if p.kind == permitSending {
		return 0
	}
	fails := g.options.On.Has(e) || g.soft500(e) && g.window.phase == shut && g.pace.why == OpenedByFailing
	switch {
	case e.Kind == Unsent || e.Kind == Connected:
		g.urls.forgetPending(e.Key)
	case fails:
		g.urls.failed(e.Key)
	case e.Kind == Responded && e.Status != 500:
		g.urls.responded(now, e.Key)
	}
	switch {
	case g.window.phase == shut:
		g.endShut(p, now, e, fails)
	case fails:
		g.failed(p, now, e)
	case e.Kind == Responded:
		g.succeeded(p, now, e)
	}
	if fails && g.window.phase == shut {
		return SignalDown
	}
	return 0
}

// answered records a response, good or not: the upstream is not silent.
func (g *core) answered(sent, now time.Duration) {
	if sent > g.silence.movedAt {
		g.silence.movedAt = 0
	}
	if g.window.phase == doubt {
		g.trusted(now)
	}
	g.window.extraAt = now + overdue(&g.baseline)
	if g.window.limits() {
		g.window.pass(sent, now, &g.baseline)
	}
}

// succeeded counts a good response while the breaker is closed or in slow start.
func (g *core) succeeded(p Permit, now time.Duration, e AttemptEnd) {
	if g.soft500(e) {
		g.soft(p, now, e)
		return
	}
	g.connections.servedAt = max(g.connections.servedAt, p.at)
	g.evidence.good(now, 1)
	g.counters.fresh.Add(now - p.at)
	if g.merelySlow(p.at, now) {
		g.wasSlow(now-p.at, now)
	}
	if p.kind == permitAbandoned {
		return
	}
	if g.window.phase == blind && p.at >= g.window.began {
		g.pace.proved()
		g.window.prove(now, g.counters, &g.baseline)
	}
	if g.window.limits() {
		g.window.ended(p.at, now, true, g.counters, &g.baseline)
	}
}

// soft500 reports whether e is a 500 that concerns one request, unless nothing else comes.
func (g *core) soft500(e AttemptEnd) bool {
	return e.Kind == Responded && e.Status == 500 && !g.options.On.given
}

// soft counts a 500. It is a good response unless nothing else comes.
func (g *core) soft(p Permit, now time.Duration, e AttemptEnd) {
	g.urls.failed(e.Key)
	g.counters.fresh.Add(now - p.at)
	if g.options.After > 0 { // only failures count in a row
		return
	}
	if g.evidence.bad(now, e, true); g.evidence.only500(now) {
		g.shut(now, OpenedByFailing)
	}
}

// failed counts a failure while the breaker is closed or in slow start.
func (g *core) failed(p Permit, now time.Duration, e AttemptEnd) {
	if p.kind == permitAbandoned { // it was counted as a failure when it was abandoned
		return
	}
	dial := e.Kind == Refused || e.Kind == DialFailed
	if e.Kind == Reset {
		g.moved(now)
		g.lost()
	}
	if g.options.After > 0 && g.evidence.row.n == 0 {
		g.refresh(now) // counts the good responses before it
	}
	if !dial || g.options.After > 0 || g.contradicted(p.at, now, e) {
		g.evidence.bad(now, e, false)
	}
	if g.window.limits() {
		g.window.ended(p.at, now, false, g.counters, &g.baseline)
	}
	switch key, one := g.evidence.oneURL(); {
	case g.options.After > 0 && !g.unproven(p, e):
		if g.evidence.row.n < g.options.After {
			return
		}
	case dial && !g.contradicted(p.at, now, e), g.unproven(p, e):
	case g.evidence.lostAll(p.at, now, e, g.counters.inFlight()):
		g.shut(now, OpenedByLost)
		return
	case (one || g.window.phase == open && g.evidence.rarelyGood()) && g.urls.otherAnswers(now, key):
		return
	case g.overloaded(e):
		g.regrow(now)
		return
	case !g.evidence.shows(now):
		return
	}
	g.shut(now, g.reason(e))
}

// overloaded reports whether clients leave because more comes than is answered: responses come, but
// later than clients wait, and far more is in flight than ever went well.
func (g *core) overloaded(e AttemptEnd) bool {
	return (e.Kind == TimedOut || e.Kind == Abandoned) && g.window.phase == open && g.mayBind() && g.silence.leftLate < manyClients &&
		g.evidence.failures() >= several && g.crowded(g.counters.awaiting())
}

// judgeOverdue lets the window grow from what is in flight if more attempts are overdue than were answered
// since, by far more than ever went well at once, and what is answered takes longer than usual. So one slow
// endpoint or URL beside others is no evidence.
func (g *core) judgeOverdue(now time.Duration) {
	at := now - overdue(&g.baseline)
	if g.window.phase == open && g.mayBind() && g.crowded(g.counters.older(at)-g.counters.endedSince(at)) && g.counters.fresh.Slower(slowTimes*g.baseline.P90) {
		g.regrow(now)
	}
}

// trusted ends a doubt: the upstream responds. If far more is in flight than ever went well, that may be
// why it was silent.
func (g *core) trusted(now time.Duration) {
	g.pace.discard()
	if g.mayBind() && g.crowded(g.counters.awaiting()) {
		g.regrow(now)
		return
	}
	g.window.enter(open, now, g.counters)
}

// regrow lets the window grow from what is in flight.
func (g *core) regrow(now time.Duration) {
	g.bind(now, 0)
	g.window.regrow(now, float64(g.counters.awaiting()), g.counters)
}

// crowded reports whether n attempts are far more than ever went well at once.
func (g *core) crowded(n int64) bool {
	return g.baseline.Established() && g.silence.movedAt == 0 && float64(n) > max(several, startFactor*g.baseline.Concurrency)
}

// unproven reports whether a failure ends the trickle after an accepted connection. A timeout
// does not: the response may take long.
func (g *core) unproven(p Permit, e AttemptEnd) bool {
	return g.window.phase == blind && p.at >= g.window.began && e.Kind != TimedOut && e.Kind != Abandoned
}

// reason returns the evidence for a failure. It determines what proves that the upstream works
// again.
func (g *core) reason(e AttemptEnd) OpenedBy {
	switch {
	case e.Kind == Refused || e.Kind == Dropped:
		return OpenedByRefused
	case e.Kind == DialFailed:
		return OpenedByDial
	case g.window.phase == shut && e.Kind != Responded && g.pace.why == OpenedByStall,
		g.window.phase != shut && (e.Kind == TimedOut || e.Kind == Abandoned):
		return OpenedByStall
	case e.Kind == Reset:
		return OpenedByLost
	}
	return OpenedByFailing
}

// shut sets the window to 0 and lets probes pass. With NoBreaker it can only bind.
func (g *core) shut(now time.Duration, why OpenedBy) {
	if g.options.NoBreaker {
		if g.mayBind() && (why == OpenedByFailing || why == OpenedByStall) {
			g.bind(now, g.counters.awaiting())
		}
		return
	}
	if g.connections.check == checkDue {
		g.connections.check = noCheck
	}
	if g.window.phase == blind { // it never came back
		g.pace.failed++
	} else {
		g.pace.opened[why]++
	}
	g.pace.shut(now, why, g.options)
	g.pace.impatient = g.silence.leftLate >= manyClients
	g.window.enter(shut, now, g.counters)
	g.evidence.row = run{}
}

// bind makes the window bind at a size.
func (g *core) bind(now time.Duration, size int64) {
	g.window.bind(now, size, g.counters, &g.baseline)
	g.urls.begin()
}

// mayBind reports whether evidence of overload can make the window bind.
func (g *core) mayBind() bool {
	return g.options.ConcurrencyLimit == ConcurrencyLimitAdaptive && (g.window.phase == open || g.window.phase == doubt)
}

// start begins the growth of the window. proof is when the request was sent whose response ended the
// outage; 0: a connection ended it.
func (g *core) start(now, proof time.Duration) {
	g.pace.discard()
	if proof > 0 {
		g.pace.proved()
	}
	g.pace.slowStarts++
	g.evidence.restart()
	g.counters.free(now, 0)
	g.window.begin(now, proof, g.counters, &g.baseline)
	g.urls.begin()
	g.silence.movedAt = 0
	g.silence.end(now, &g.counters.generations)
}

// endShut records the end of an attempt while the window is shut. What shut it is what opens
// it again: after failed connections an accepted one, after silence any response that is no failure,
// and after failures a good response to a request sent since.
func (g *core) endShut(p Permit, now time.Duration, e AttemptEnd, fails bool) {
	probe := g.isProbe(p)
	switch {
	case e.Kind == Connected && (g.pace.why.connecting() || g.options.ActiveProbe && probe):
		g.start(now, 0)
	case e.Kind == Responded && !fails:
		if probe || p.at > g.window.began || g.pace.why == OpenedByStall {
			g.start(now, max(p.at, 1))
		}
	case !probe:
	case e.Kind == Connected, e.Kind == Unsent:
		g.pace.discard()
	default:
		g.pace.fail(now, g.reason(e), g.options)
	}
}

// isProbe reports whether p is the permit of the probe in flight.
func (g *core) isProbe(p Permit) bool { return p.probe != 0 && p.probe == g.pace.probe }

// abandon records that no client waits for an attempt. A client that leaves early is no
// evidence.
func (g *core) abandon(p Permit, now time.Duration, e AttemptEnd) (down Signal) {
	due := overdue(&g.baseline)
	late := e.Kind == TimedOut || now-p.at >= due
	switch {
	case late || now-p.at >= due/2:
		g.silence.leave(p.at, now, late, &g.baseline)
		g.pace.impatient = g.pace.impatient || g.silence.leftLate >= manyClients
	default:
		g.urls.forgetPending(e.Key)
	}
	if late && g.window.phase != shut && g.options.On.Has(e) && (g.options.After == 0 || e.Kind == TimedOut) {
		g.failed(p, now, e)
	}
	if g.window.phase == shut {
		if e.Closed && g.isProbe(p) {
			g.pace.fail(now, g.pace.why, g.options)
		}
		if late {
			down = SignalDown
		}
	}
	g.counters.abandon(p)
	return down
}

// moved records that a server which may have responded until now is gone. Others, which were idle and may be
// cold, take over from it: until one of them responds to a request sent since, what is usual does not tell
// how long they take. In a doubt, the silence was there before.
func (g *core) moved(now time.Duration) {
	if g.window.phase == open {
		g.silence.movedAt = max(now, 1)
	}
}

// lost makes a check due after a lost connection.
func (g *core) lost() {
	c := &g.connections
	if c.check == noCheck && !g.options.NoBreaker && g.options.After == 0 && g.options.On.Has(AttemptEnd{Kind: Dropped}) {
		c.check = checkDue
	}
}

// takeCheck returns the permit of the check that is due.
func (g *core) takeCheck(now time.Duration) Permit {
	g.connections.check = checking
	g.counters.begin(now)
	return Permit{at: now, kind: permitCheck}
}

// checked records the end of a check.
func (g *core) checked(p Permit, now time.Duration, e AttemptEnd) {
	g.connections.check = noCheck
	if g.window.phase == shut || !g.options.On.Has(e) || g.contradicted(p.at, now, e) {
		return
	}
	g.shut(now, g.reason(e))
}

// contradicted reports whether the upstream accepts connections although the attempt's
// connection failed.
func (g *core) contradicted(sent, now time.Duration, e AttemptEnd) bool {
	if e.Kind == Dropped {
		g.refresh(now)
		return g.silence.lastAt > sent || g.counters.older(sent) > 0
	}
	if g.connections.contradicted(sent) {
		return true
	}
	if e.Kind != DialFailed {
		return false
	}
	g.refresh(now) // the dial failed slowly while existing connections work
	return g.silence.lastAt > sent
}

// The fast paths only count. Every refreshInterval (about 40 ms if responses take 100 ms) one
// of them reads the counters.

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
	l := &g.learner
	good := g.counters.answered()
	l.peak = max(l.peak, g.counters.awaiting())
	if dt := now - l.folded; dt >= latency.FoldEvery {
		g.learn(now, dt)
	}
	g.counters.free(now, g.abandonedPeriod())
	g.beginIfDue(now)
	g.judgeOverdue(now)
	if good > 0 {
		g.evidence.good(now, good)
		g.silence.end(now, &g.counters.generations)
	}
	g.judgeSilence(now)
}

// beginIfDue begins a generation when the latest one has lasted long enough.
func (g *core) beginIfDue(now time.Duration) {
	if now >= g.counters.now().began+g.window.due(&g.baseline)/generationsPerOverdue {
		g.counters.begin(now)
	}
}

// judgeSilence moves the window by a silence.
func (g *core) judgeSilence(now time.Duration) {
	w := &g.window
	if w.phase == shut || g.options.NoBreaker && !g.mayBind() {
		return
	}
	if g.silence.suspicion(now, &g.baseline, &g.counters.generations) < suspicionThreshold {
		if w.phase == doubt {
			g.trusted(now)
		}
		return
	}
	if g.longSilent(now) && g.confirmed(now) {
		g.shut(now, OpenedByStall)
	} else if w.phase == open {
		w.enter(doubt, now, g.counters)
		w.extraAt = now + g.doubtInterval()
		g.pace.discard()
		g.urls.begin()
	}
}

// longSilent reports whether a silence lasts so long that the upstream is down. While few latencies are
// known, a client must have left late, too.
func (g *core) longSilent(now time.Duration) bool {
	left := g.silence.leftLate
	return left >= manyClients || now-g.silence.since >= downAfter(&g.baseline) && (left > 0 || g.baseline.Established())
}

// onlySilent reports whether silence is the only evidence against the upstream, or nothing is while the
// window grows, and whether clients wait longer than that.
func (g *core) onlySilent() bool {
	switch w := &g.window; {
	case w.phase == doubt:
		return g.silence.leftLate < manyClients
	case w.phase == shut:
		return g.pace.why == OpenedByStall && !g.pace.impatient
	}
	return (g.window.phase == blind || g.window.phase == start) && (g.pace.why != OpenedByStall || !g.pace.impatient)
}

// confirmed reports whether a silence judges the upstream, and not one URL: two URLs are
// silent, or no other one was answered lately.
func (g *core) confirmed(now time.Duration) bool {
	silents, knowns := g.urls.count(now, overdue(&g.baseline))
	return silents >= 2 || knowns == 0
}

// doubtInterval returns the time between two requests that pass in doubt: four usual gaps, so
// that fifty proxies with little traffic let as few pass as one with much. A stopped upstream
// has them to work off later, and a slow one keeps responding to them.
func (g *core) doubtInterval() time.Duration {
	const least, gaps = 100 * time.Millisecond, 4 // with the least alone, fifty proxies send 232 instead of 189 at once
	return max(least, time.Duration(gaps/max(g.baseline.Rate(), gaps)*float64(overdueUnknown)))
}

// abandonedPeriod returns how long an abandoned attempt counts as in flight: until it is long overdue.
func (g *core) abandonedPeriod() time.Duration {
	return min(numGenerations/generationsPerOverdue*overdue(&g.baseline), 2*downMax)
}

// expire applies what is due by time alone, and forgets uploads that ended.
func (g *core) expire(now time.Duration) {
	w := &g.window
	w.uploads = min(w.uploads, g.counters.sending.Load())
	if w.phase == shut {
		g.pace.expire(now, g.options)
	}
	w.growBlindly(now, g.counters, &g.baseline)
	if w.limits() {
		if g.waiting.any() {
			w.waitedAt = now
		} else if now >= w.waitedAt+latency.FoldEvery {
			w.enter(open, now, g.counters)
		}
	}
	if w.phase == seek && now >= w.began+evidenceWindow {
		w.outage = 0
	}
	g.waiting.noneFits = g.waiting.noneFits && now < g.eventAt
}

// finish ends every call that may have changed something. It applies what is due, publishes
// the state to the fast paths, and returns what the caller has to do.
func (g *core) finish(now, eventBefore time.Duration) Signal {
	g.waiting.noneFits = false
	g.expire(now)
	g.publish(now)
	var s Signal
	if g.waiting.any() && g.admitsAt(now) <= now {
		s |= SignalWake
	}
	if g.eventAt != eventBefore {
		s |= SignalEvent
	}
	return s
}

// publish makes the state visible to the fast paths and computes the next event.
func (g *core) publish(now time.Duration) {
	mode := uint32(0)
	if g.window.binds() || g.options.ConcurrencyLimit == ConcurrencyLimitFixed || g.waiting.any() {
		mode |= modeSlow
	}
	if g.evidence.until != 0 || g.silence.movedAt != 0 {
		mode |= modeRecentFailures
	}
	if g.counters.mode.Load() != mode {
		g.counters.mode.Store(mode)
	}
	g.eventAt = g.nextEvent(now)
}
