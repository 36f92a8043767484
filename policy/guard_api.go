package policy

import "time"

// Next takes a permit for the head of the queue, if there is one to take:
// VerdictGo, or VerdictProbe, which is for the next one whose request is whole. It
// then leaves the queue. r is of the head. On VerdictBreakerOpen and
// VerdictAtLimit nothing has changed and there is no use in asking again before
// the next SignalWake. With nobody waiting it says VerdictBreakerOpen.
func (g *Guard) Next(now time.Duration, r Request) (Permit, Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == 0 {
		return Permit{}, VerdictBreakerOpen
	}
	g.refreshIfDue(now)
	g.expire(now)
	v := g.verdictHead(now)
	if v > VerdictProbe {
		g.publish(now)
		return Permit{}, v
	}
	g.addWaiting(-1, Request{Unfinished: v == VerdictGo && r.Unfinished})
	if v == VerdictGo && g.suspect.on {
		g.urls.recordPending(g.stall.lastResponseAt, now, now+overdue(&g.baseline), r.Key)
	}
	return g.issuePermit(now, v), v
}

// CancelWait ends the wait of a request without a place: the client left, its time was up, it was
// dropped from the queue, or it was refused instead of put there.
func (g *Guard) CancelWait(now time.Duration, r Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addWaiting(-1, r)
	g.publish(now)
}

// Abandon says that an attempt which was sent is no longer waited for: the
// client left (AttemptEnd.Kind Abandoned) or the attempt timeout passed (TimedOut).
// The upstream still works on it, so its place stays taken until the upstream
// answers or closes (Leave with the Place that Abandon gives: keep the
// connection and read on, for the late response of a stopped upstream is the
// first sign of its return), until a probe succeeds, or until a bound passes.
// With AttemptEnd.Closed nobody reads on, the Place is zero and there must be no
// Leave.
func (g *Guard) Abandon(p Permit, now time.Duration, e AttemptEnd) (Permit, Signal) {
	if p.kind == permitSending {
		return Permit{}, g.releaseUnfinished(now, e)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.kind != permitTaken {
		return p, 0
	}
	before := g.eventAt
	g.refreshIfDue(now)
	g.recordAbandoned(p, now, e)
	p.batch, p.kind = g.abandoned.add(now), permitAbandoned
	if e.Closed {
		p = Permit{}
	}
	return p, g.finish(now, before)
}

// Probe takes the place of the probe without an attempt: the user may probe by
// connecting (Leave with Connected, Refused or DialFailed), by a request of
// its own, or not at all. It says no while no probe is due.
func (g *Guard) Probe(now time.Duration) (Permit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.breaker.expire(now)
	if !g.breaker.due() {
		return Permit{}, false
	}
	return g.issuePermit(now, VerdictProbe), true
}

// ProbePending reports whether the probe p is still the one in flight.
func (g *Guard) ProbePending(p Permit) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.probe != 0 && p.probe == g.breaker.probe
}

// ReplaceProbe gives the probe p up before its time, if it is still the one under
// way: the upstream is known to be elsewhere now. Another is due at once. p
// stays taken; should it be answered after all, that counts as ever.
func (g *Guard) ReplaceProbe(p Permit, now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.probe == 0 || p.probe != g.breaker.probe {
		return 0
	}
	before := g.eventAt
	g.breaker.discardProbe()
	return g.finish(now, before)
}

// NextEvent is when Expire is to be called, Forever when there is nothing to
// come; 0 when somebody in the queue should have been admitted already, or, with
// GuardOptions.ActiveProbe, while a probe is due. It changes only within calls that return a SignalEvent, a Verdict that
// is not VerdictGo, or a probe.
func (g *Guard) NextEvent() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.eventAt
}

// BreakerClosed reports whether the breaker is closed. It takes no lock while no limit binds
// either.
func (g *Guard) BreakerClosed() bool {
	if g.mode.Load()&modeSlow == 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.breaker.state == BreakerClosed
}

// Expire lets happen what is due by now: a probe, permits whose bound has
// passed, the end of a limit that no longer binds. Calling it early or late
// does no harm.
func (g *Guard) Expire(now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.eventAt
	g.refresh(now)
	return g.finish(now, before)
}

// BreakerState is where the breaker stands. Its String is a metric label.
type BreakerState uint8

// The states of a breaker, a closed set.
const (
	BreakerClosed    BreakerState = iota
	BreakerOpen                   // nothing is sent until the next probe is due
	BreakerHalfOpen               // a probe is due or in flight
	BreakerSlowStart              // the upstream is back, and gets step by step what it got before
	numBreakerStates
)

// OpenedBy is the evidence that opens a breaker. Its String is a metric label.
type OpenedBy uint8

// The evidence, a closed set.
const (
	OpenedByNothing OpenedBy = iota
	OpenedByRefused          // no address takes connections
	OpenedByDial             // no connection for another reason
	OpenedByFailing          // nearly all attempts failed
	OpenedByStall            // no response for far longer than usual
	OpenedByLost             // what was in flight was lost all at once
	numOpenedBy
)

// NumBreakerStates and NumOpenedBy are the sizes of the sets.
const (
	NumBreakerStates = int(numBreakerStates)
	NumOpenedBy      = int(numOpenedBy)
)

var breakerStateTexts = [numBreakerStates]text{
	BreakerClosed:    {"closed", "Requests pass."},
	BreakerOpen:      {"open", "The upstream is down; requests wait or are refused until the next probe."},
	BreakerHalfOpen:  {"half_open", "A single probe tries whether the upstream is back."},
	BreakerSlowStart: {"slow_start", "The upstream is back and gets more requests step by step."},
}

var openedByTexts = [numOpenedBy]text{
	OpenedByNothing: {"none", "The breaker was never opened."},
	OpenedByRefused: {"refused", "No address of the upstream took connections."},
	OpenedByDial:    {"dial", "No connection to the upstream could be made."},
	OpenedByFailing: {"failing", "Nearly all attempts failed: resets, timeouts, clients who left late, 502, 503 or 504 (RETRYPROXY_BREAKER_ON)."},
	OpenedByStall:   {"stall", "No response came for far longer than usual."},
	OpenedByLost:    {"lost", "The connections of nearly all requests in flight ended at once, as when a process is killed."},
}

// String is the metric label. A value outside the set gives "invalid".
func (s BreakerState) String() string { return lookup(breakerStateTexts[:], int(s)).label }

// Explain is one sentence for a reader of metrics.
func (s BreakerState) Explain() string { return lookup(breakerStateTexts[:], int(s)).explain }

// String is the metric label. A value outside the set gives "invalid".
func (c OpenedBy) String() string { return lookup(openedByTexts[:], int(c)).label }

// Explain is one sentence for a reader of metrics.
func (c OpenedBy) Explain() string { return lookup(openedByTexts[:], int(c)).explain }

// GuardState is what a Guard knows, for metrics and tests.
type GuardState struct {
	Breaker            BreakerState
	OpenedBy           OpenedBy            // the evidence of the last time
	Opened             [NumOpenedBy]uint64 // how often the breaker was opened, by evidence
	SlowStarts         uint64              // how often slow start began
	Probes             uint64              // permits given to probes
	Suspect            bool                // no response came for longer than usual, and the breaker is not closed: few pass
	ConcurrencyLimit   int                 // requests at once; 0 = no limit binds
	LimitBound         uint64              // how often overload made the limit bind
	InFlight           int                 // permits taken, abandoned ones included
	Abandoned          int                 // of these, those nobody waits for
	Queued             int                 // counted by Enter and not ended by Next or Quit
	LearnedConcurrency float64             // concurrency that the upstream was seen to bear, a mean over 1 s
	MedianLatency      time.Duration       // median time to a response header section; 0 = not yet known
}

// State is a consistent view.
func (g *Guard) State() GuardState {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := GuardState{
		Breaker:            g.breaker.state,
		OpenedBy:           g.breaker.why,
		Opened:             g.breaker.opened,
		SlowStarts:         g.breaker.slowStarts,
		Probes:             g.breaker.probes,
		Suspect:            g.suspect.on,
		LimitBound:         g.limiter.boundCount,
		InFlight:           int(g.inFlight()),
		Abandoned:          int(g.abandoned.count),
		Queued:             g.waiting,
		LearnedConcurrency: g.baseline.concurrency,
		MedianLatency:      g.baseline.median,
	}
	if g.limiter.bound {
		s.ConcurrencyLimit = int(g.limiter.wholeLimit())
	}
	if g.options.ConcurrencyLimit == ConcurrencyLimitFixed && (s.ConcurrencyLimit == 0 || s.ConcurrencyLimit > g.options.FixedLimit) {
		s.ConcurrencyLimit = g.options.FixedLimit
	}
	return s
}
