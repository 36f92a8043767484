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
func (c *core) state() State {
	switch {
	case c.window.phase == shut && (c.pace.due() || c.pace.probing()):
		return HalfOpen
	case c.window.phase == shut:
		return Open
	case c.window.recovering():
		return SlowStart
	}
	return Closed
}

// end records the end of an attempt. It returns SignalDown if it failed while the upstream is
// known to be down.
func (c *core) end(p Permit, now time.Duration, e AttemptEnd) Signal {
	if p.kind == permitCheck {
		c.checked(p, now, e)
		return 0
	}
	if e.CutShort {
		e.Kind = Unsent
	}
	c.counters.release(p)
	if e.Kind == Responded {
		c.silence.end(now, &c.counters.generations)
		c.answered(p.at, now)
	}
	if c.window.phase != shut && c.isProbe(p) {
		c.pace.discard()
	}
	if p.kind == permitSending {
		return 0
	}
	fails := c.options.On.Has(e) || c.soft500(e) && c.window.phase == shut && c.pace.why == OpenedByFailing
	switch {
	case e.Kind == Unsent || e.Kind == Connected:
		c.urls.forgetPending(e.Key)
	case fails:
		c.urls.failed(e.Key)
	case e.Kind == Responded && e.Status != 500:
		c.urls.responded(now, e.Key)
	}
	switch {
	case c.window.phase == shut:
		c.endShut(p, now, e, fails)
	case fails:
		c.failed(p, now, e)
	case e.Kind == Responded:
		c.succeeded(p, now, e)
	}
	if fails && c.window.phase == shut {
		return SignalDown
	}
	return 0
}

// answered records a response, good or not: the upstream is not silent.
func (c *core) answered(sent, now time.Duration) {
	if sent > c.silence.movedAt {
		c.silence.movedAt = 0
	}
	if c.window.phase == doubt {
		c.trusted(now)
	}
	c.window.extraAt = now + overdue(&c.baseline)
	if c.window.limits() {
		c.window.pass(sent, now, &c.baseline)
	}
}

// succeeded counts a good response while the breaker is closed or in slow start.
func (c *core) succeeded(p Permit, now time.Duration, e AttemptEnd) {
	if c.soft500(e) {
		c.soft(p, now, e)
		return
	}
	c.connections.servedAt = max(c.connections.servedAt, p.at)
	c.evidence.good(now, 1)
	c.evidence.goodSent(p.at)
	c.counters.fresh.Add(now - p.at)
	if c.merelySlow(p.at, now) {
		c.wasSlow(now-p.at, now)
	}
	if p.kind == permitAbandoned {
		return
	}
	if c.window.phase == blind && p.at >= c.window.began {
		c.pace.proved()
		c.window.prove(now, c.counters, &c.baseline)
	}
	if c.window.limits() {
		c.window.ended(p.at, now, true, c.counters, &c.baseline)
	}
}

// soft500 reports whether e is a 500 that concerns one request, unless nothing else comes.
func (c *core) soft500(e AttemptEnd) bool {
	return e.Kind == Responded && e.Status == 500 && !c.options.On.given
}

// soft counts a 500. It is a good response unless nothing else comes.
func (c *core) soft(p Permit, now time.Duration, e AttemptEnd) {
	c.urls.failed(e.Key)
	c.counters.fresh.Add(now - p.at)
	if c.options.After > 0 { // only failures count in a row
		return
	}
	if c.evidence.bad(p.at, now, e, true); c.evidence.only500(now) {
		c.shut(now, OpenedByFailing)
	}
}

// failed counts a failure while the breaker is closed or in slow start.
func (c *core) failed(p Permit, now time.Duration, e AttemptEnd) {
	if p.kind == permitAbandoned { // it was counted as a failure when it was abandoned
		return
	}
	dial := e.Kind == Refused || e.Kind == DialFailed
	if e.Kind == Reset {
		c.moved(now)
		c.lost()
	}
	if c.options.After > 0 && c.evidence.row.n == 0 {
		c.refresh(now) // counts the good responses before it
	}
	if !dial || c.options.After > 0 || c.contradicted(p.at, now, e) {
		c.evidence.bad(p.at, now, e, false)
	}
	if c.window.limits() {
		c.window.ended(p.at, now, false, c.counters, &c.baseline)
	}
	switch key, one := c.evidence.oneURL(); {
	case c.options.After > 0 && !c.unproven(p, e):
		if c.evidence.row.n < c.options.After {
			return
		}
	case dial && !c.contradicted(p.at, now, e), c.unproven(p, e):
	case c.evidence.lostAll(c.counters.inFlight()):
		c.shut(now, OpenedByLost)
		return
	case (one || c.window.phase == open && c.evidence.rarelyGood()) && c.urls.otherAnswers(now, key):
		return
	case c.overloaded(e):
		c.regrow(now)
		return
	case !c.evidence.shows(now):
		return
	}
	c.shut(now, c.reason(e))
}

// overloaded reports whether clients leave because more comes than is answered: responses come, but
// later than clients wait, and far more is in flight than ever went well.
func (c *core) overloaded(e AttemptEnd) bool {
	return (e.Kind == TimedOut || e.Kind == Abandoned) && c.window.phase == open && c.mayBind() && c.silence.leftLate < manyClients &&
		c.evidence.unanswered >= several && c.crowded(c.counters.awaiting())
}

// judgeOverdue lets the window grow from what is in flight if more attempts are overdue than were answered
// since, by far more than ever went well at once, and what is answered takes longer than usual. So one slow
// endpoint or URL beside others is no evidence.
func (c *core) judgeOverdue(now time.Duration) {
	at := now - overdue(&c.baseline)
	if c.window.phase == open && c.mayBind() && c.crowded(c.counters.older(at)-c.counters.endedSince(at)) && c.counters.fresh.Slower(slowTimes*c.baseline.P90) {
		c.regrow(now)
	}
}

// trusted ends a doubt: the upstream responds. If far more is in flight than ever went well, that may be
// why it was silent.
func (c *core) trusted(now time.Duration) {
	c.pace.discard()
	if c.mayBind() && c.crowded(c.counters.awaiting()) {
		c.regrow(now)
		return
	}
	c.window.enter(open, now, c.counters)
}

// regrow lets the window grow from what is in flight.
func (c *core) regrow(now time.Duration) {
	c.bind(now, 0)
	c.window.regrow(now, float64(c.counters.awaiting()), c.counters)
}

// crowded reports whether n attempts are far more than ever went well at once.
func (c *core) crowded(n int64) bool {
	return c.baseline.Established() && c.silence.movedAt == 0 && float64(n) > max(several, startFactor*c.baseline.Concurrency)
}

// unproven reports whether a failure ends the trickle after an accepted connection. A timeout
// does not: the response may take long.
func (c *core) unproven(p Permit, e AttemptEnd) bool {
	return c.window.phase == blind && p.at >= c.window.began && e.Kind != TimedOut && e.Kind != Abandoned
}

// reason returns the evidence for a failure. It determines what proves that the upstream works
// again.
func (c *core) reason(e AttemptEnd) OpenedBy {
	switch {
	case e.Kind == Refused || e.Kind == Dropped:
		return OpenedByRefused
	case e.Kind == DialFailed:
		return OpenedByDial
	case c.window.phase == shut && e.Kind != Responded && c.pace.why == OpenedByStall,
		c.window.phase != shut && c.evidence.mostlyUnanswered():
		return OpenedByStall
	case e.Kind == Reset:
		return OpenedByLost
	}
	return OpenedByFailing
}

// shut sets the window to 0 and lets probes pass. With NoBreaker it can only bind.
func (c *core) shut(now time.Duration, why OpenedBy) {
	if c.options.NoBreaker {
		if c.mayBind() && (why == OpenedByFailing || why == OpenedByStall) {
			c.bind(now, c.counters.awaiting())
		}
		return
	}
	if c.connections.check == checkDue {
		c.connections.check = noCheck
	}
	if c.window.phase == blind { // it never came back
		c.pace.failed++
	} else {
		c.pace.opened[why]++
	}
	c.pace.shut(now, why, c.options)
	c.pace.impatient = c.silence.leftLate >= manyClients
	c.window.enter(shut, now, c.counters)
	c.evidence.burst, c.evidence.row = run{}, run{}
}

// bind makes the window bind at a size.
func (c *core) bind(now time.Duration, size int64) {
	c.window.bind(now, size, c.counters, &c.baseline)
	c.urls.begin()
}

// mayBind reports whether evidence of overload can make the window bind.
func (c *core) mayBind() bool {
	return c.options.ConcurrencyLimit == ConcurrencyLimitAdaptive && (c.window.phase == open || c.window.phase == doubt)
}

// start begins the growth of the window. proof is when the request was sent whose response ended the
// outage; 0: a connection ended it.
func (c *core) start(now, proof time.Duration) {
	c.pace.discard()
	if proof > 0 {
		c.pace.proved()
	}
	c.pace.slowStarts++
	c.evidence.restart()
	c.counters.free(now, 0)
	c.window.begin(now, proof, c.counters, &c.baseline)
	c.urls.begin()
	c.silence.movedAt = 0
	c.silence.end(now, &c.counters.generations)
}

// endShut records the end of an attempt while the window is shut. What shut it is what opens
// it again: after failed connections an accepted one, after silence any response that is no failure,
// and after failures a good response to a request sent since.
func (c *core) endShut(p Permit, now time.Duration, e AttemptEnd, fails bool) {
	probe := c.isProbe(p)
	switch {
	case e.Kind == Connected && (c.pace.why.connecting() || c.options.ActiveProbe && probe):
		c.start(now, 0)
	case e.Kind == Responded && !fails:
		if probe || p.at > c.window.began || c.pace.why == OpenedByStall {
			c.start(now, max(p.at, 1))
		}
	case !probe:
	case e.Kind == Connected, e.Kind == Unsent:
		c.pace.discard()
	default:
		c.pace.fail(now, c.reason(e), c.options)
	}
}

// isProbe reports whether p is the permit of the probe in flight.
func (c *core) isProbe(p Permit) bool { return p.probe != 0 && p.probe == c.pace.probe }

// abandon records that no client waits for an attempt. A client that leaves early is no
// evidence.
func (c *core) abandon(p Permit, now time.Duration, e AttemptEnd) (down Signal) {
	due := overdue(&c.baseline)
	late := e.Kind == TimedOut || now-p.at >= due
	switch {
	case late || now-p.at >= due/2:
		c.silence.leave(p.at, now, late, &c.baseline)
		c.pace.impatient = c.pace.impatient || c.silence.leftLate >= manyClients
	default:
		c.urls.forgetPending(e.Key)
	}
	if late && c.window.phase != shut && c.options.On.Has(e) && (c.options.After == 0 || e.Kind == TimedOut) {
		c.failed(p, now, e)
	}
	if c.window.phase == shut {
		if e.Closed && c.isProbe(p) {
			c.pace.fail(now, c.pace.why, c.options)
		}
		if late {
			down = SignalDown
		}
	}
	c.counters.abandon(p)
	return down
}

// moved records that a server which may have responded until now is gone. Others, which were idle and may be
// cold, take over from it: until one of them responds to a request sent since, what is usual does not tell
// how long they take. In a doubt, the silence was there before.
func (c *core) moved(now time.Duration) {
	if c.window.phase == open {
		c.silence.movedAt = max(now, 1)
	}
}

// lost makes a check due after a lost connection.
func (c *core) lost() {
	seen := &c.connections
	if seen.check == noCheck && !c.options.NoBreaker && c.options.After == 0 && c.options.On.Has(AttemptEnd{Kind: Dropped}) {
		seen.check = checkDue
	}
}

// takeCheck returns the permit of the check that is due.
func (c *core) takeCheck(now time.Duration) Permit {
	c.connections.check = checking
	c.counters.begin(now)
	return Permit{at: now, kind: permitCheck}
}

// checked records the end of a check.
func (c *core) checked(p Permit, now time.Duration, e AttemptEnd) {
	c.connections.check = noCheck
	if c.window.phase == shut || !c.options.On.Has(e) || c.contradicted(p.at, now, e) {
		return
	}
	c.shut(now, c.reason(e))
}

// contradicted reports whether the upstream accepts connections although the attempt's
// connection failed.
func (c *core) contradicted(sent, now time.Duration, e AttemptEnd) bool {
	if e.Kind == Dropped {
		c.refresh(now)
		return c.silence.lastAt > sent || c.counters.older(sent) > 0
	}
	if c.connections.contradicted(sent) {
		return true
	}
	if e.Kind != DialFailed {
		return false
	}
	c.refresh(now) // the dial failed slowly while existing connections work
	return c.silence.lastAt > sent
}

// The fast paths only count. Every refreshInterval (about 40 ms if responses take 100 ms) one
// of them reads the counters.

func (c *core) refreshIfDue(now time.Duration) bool {
	if int64(now) < c.counters.tickAt.Load() {
		return false
	}
	c.refresh(now)
	c.counters.tickAt.Store(int64(now + refreshInterval(&c.baseline)))
	return true
}

// refresh processes what the fast paths counted.
func (c *core) refresh(now time.Duration) {
	l := &c.learner
	good := c.counters.answered()
	l.peak = max(l.peak, c.counters.awaiting())
	if dt := now - l.folded; dt >= latency.FoldEvery {
		c.learn(now, dt)
	}
	c.counters.free(now, c.abandonedPeriod())
	c.beginIfDue(now)
	c.judgeOverdue(now)
	if good > 0 {
		c.evidence.good(now, good)
		c.silence.end(now, &c.counters.generations)
	}
	c.judgeSilence(now)
}

// beginIfDue begins a generation when the latest one has lasted long enough.
func (c *core) beginIfDue(now time.Duration) {
	if now >= c.counters.now().began+c.window.due(&c.baseline)/generationsPerOverdue {
		c.counters.begin(now)
	}
}

// judgeSilence moves the window by a silence.
func (c *core) judgeSilence(now time.Duration) {
	w := &c.window
	if w.phase == shut || c.options.NoBreaker && !c.mayBind() {
		return
	}
	if c.silence.suspicion(now, &c.baseline, &c.counters.generations) < suspicionThreshold {
		if w.phase == doubt {
			c.trusted(now)
		}
		return
	}
	if c.longSilent(now) && c.confirmed(now) {
		c.shut(now, OpenedByStall)
	} else if w.phase == open {
		w.enter(doubt, now, c.counters)
		w.extraAt = now + c.doubtInterval()
		c.pace.discard()
		c.urls.begin()
	}
}

// longSilent reports whether a silence lasts so long that the upstream is down. While few latencies are
// known, a client must have left late, too.
func (c *core) longSilent(now time.Duration) bool {
	left := c.silence.leftLate
	return left >= manyClients || now-c.silence.since >= downAfter(&c.baseline) && (left > 0 || c.baseline.Established())
}

// onlySilent reports whether silence is the only evidence against the upstream, or nothing is while the
// window grows, and whether clients wait longer than that.
func (c *core) onlySilent() bool {
	switch w := &c.window; {
	case w.phase == doubt:
		return c.silence.leftLate < manyClients
	case w.phase == shut:
		return c.pace.why == OpenedByStall && !c.pace.impatient
	}
	return (c.window.phase == blind || c.window.phase == start) && (c.pace.why != OpenedByStall || !c.pace.impatient)
}

// confirmed reports whether a silence judges the upstream, and not one URL: two URLs are
// silent, or no other one was answered lately.
func (c *core) confirmed(now time.Duration) bool {
	silents, knowns := c.urls.count(now, overdue(&c.baseline))
	return silents >= 2 || knowns == 0
}

// doubtInterval returns the time between two requests that pass in doubt: four usual gaps, so
// that fifty proxies with little traffic let as few pass as one with much. A stopped upstream
// has them to work off later, and a slow one keeps responding to them.
func (c *core) doubtInterval() time.Duration {
	const least, gaps = 100 * time.Millisecond, 4 // with the least alone, fifty proxies send 232 instead of 189 at once
	return max(least, time.Duration(gaps/max(c.baseline.Rate(), gaps)*float64(overdueUnknown)))
}

// abandonedPeriod returns how long an abandoned attempt counts as in flight: until it is long overdue.
func (c *core) abandonedPeriod() time.Duration {
	return min(numGenerations/generationsPerOverdue*overdue(&c.baseline), 2*downMax)
}

// expire applies what is due by time alone, and forgets uploads that ended.
func (c *core) expire(now time.Duration) {
	w := &c.window
	w.uploads = min(w.uploads, c.counters.sending.Load())
	if w.phase == shut {
		c.pace.expire(now)
	}
	w.growBlindly(now, c.counters, &c.baseline)
	if w.limits() {
		if c.waiting.any() {
			w.waitedAt = now
		} else if now >= w.waitedAt+latency.FoldEvery {
			w.enter(open, now, c.counters)
		}
	}
	if w.phase == seek && now >= w.began+evidenceWindow {
		w.outage = 0
	}
	c.waiting.noneFits = c.waiting.noneFits && now < c.eventAt
}

// finish ends every call that may have changed something. It applies what is due, publishes
// the state to the fast paths, and returns what the caller has to do.
func (c *core) finish(now, eventBefore time.Duration) Signal {
	c.waiting.noneFits = false
	c.expire(now)
	c.publish(now)
	var s Signal
	if c.waiting.any() && c.admitsAt(now) <= now {
		s |= SignalWake
	}
	if c.eventAt != eventBefore {
		s |= SignalEvent
	}
	return s
}

// publish makes the state visible to the fast paths and computes the next event.
func (c *core) publish(now time.Duration) {
	mode := uint32(0)
	if c.window.binds() || c.options.ConcurrencyLimit == ConcurrencyLimitFixed || c.waiting.any() {
		mode |= modeSlow
	}
	if c.evidence.until != 0 || c.silence.movedAt != 0 {
		mode |= modeRecentFailures
	}
	if c.counters.mode.Load() != mode {
		c.counters.mode.Store(mode)
	}
	c.eventAt = c.nextEvent(now)
}
