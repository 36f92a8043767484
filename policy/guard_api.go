package policy

import "time"

// Next takes a place for the head of the line, if there is one to take:
// VerdictGo, or VerdictProbe, which is for the next one whose request is whole. It
// then leaves the line. r is of the head. On VerdictHold and
// VerdictQueue nothing has changed and there is no use in asking again before
// the next SignalWake. With nobody waiting it says VerdictHold.
func (g *Guard) Next(now time.Duration, r Request) (Place, Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == 0 {
		return Place{}, VerdictHold
	}
	g.lookIfDue(now)
	g.expire(now)
	v := g.verdictHead(now)
	if v > VerdictProbe {
		g.publish(now)
		return Place{}, v
	}
	g.waits(-1, Request{Unfinished: v == VerdictGo && r.Unfinished})
	if v == VerdictGo && g.doubt.on {
		g.urls.wentSilent(g.silence.brokenAt, now, now+overdue(&g.usual), r.Key)
	}
	return g.take(now, v), v
}

// Quit ends the wait of a request without a place: the caller left, its time was up, it was
// dropped from the line, or it was refused instead of put there.
func (g *Guard) Quit(now time.Duration, r Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waits(-1, r)
	g.publish(now)
}

// Abandon says that an attempt which was sent is no longer waited for: the
// caller left (Ending.Kind Abandoned) or the attempt timeout passed (TimedOut).
// The upstream still works on it, so its place stays taken until the upstream
// answers or closes (Leave with the Place that Abandon gives: keep the
// connection and read on, for the late answer of a stopped upstream is the
// first sign of its return), until a probe succeeds, or until a bound passes.
// With Ending.Closed nobody reads on, the Place is zero and there must be no
// Leave.
func (g *Guard) Abandon(p Place, now time.Duration, e Ending) (Place, Signal) {
	if p.kind == placeSending {
		return Place{}, g.leaveUnfinished(now, e)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.kind != placeTaken {
		return p, 0
	}
	before := g.eventAt
	g.lookIfDue(now)
	g.judgeAbandoned(p, now, e)
	p.batch, p.kind = g.lost.add(now), placeAbandoned
	if e.Closed {
		p = Place{}
	}
	return p, g.settle(now, before)
}

// Probe takes the place of the probe without an attempt: the user may probe by
// connecting (Leave with Connected, Refused or DialFailed), by a request of
// its own, or not at all. It says no while no probe is due.
func (g *Guard) Probe(now time.Duration) (Place, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.expire(now)
	if !g.gate.due() {
		return Place{}, false
	}
	return g.take(now, VerdictProbe), true
}

// Hangs reports whether the probe p is still the one under way.
func (g *Guard) Hangs(p Place) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.probe != 0 && p.probe == g.gate.probe
}

// ProbeAgain gives the probe p up before its time, if it is still the one under
// way: the upstream is known to be elsewhere now. Another is due at once. p
// stays taken; should it be answered after all, that counts as ever.
func (g *Guard) ProbeAgain(p Place, now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.probe == 0 || p.probe != g.gate.probe {
		return 0
	}
	before := g.eventAt
	g.gate.waive()
	return g.settle(now, before)
}

// NextEvent is when Expire is to be called, Forever when there is nothing to
// come; 0 when somebody in line should have been admitted already, or, with
// GuardOptions.OwnProbe, while a probe is due. It changes only within calls that return a SignalEvent, a Verdict that
// is not VerdictGo, or a probe.
func (g *Guard) NextEvent() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.eventAt
}

// Open reports whether the gate is open. It takes no lock while no limit binds
// either.
func (g *Guard) Open() bool {
	if g.mode.Load()&modeSlow == 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gate.state == GateOpen
}

// Expire lets happen what is due by now: a probe, places whose bound has
// passed, the end of a limit that no longer binds. Calling it early or late
// does no harm.
func (g *Guard) Expire(now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.eventAt
	g.look(now)
	return g.settle(now, before)
}

// GateState is where the gate stands. Its String is a metric label.
type GateState uint8

// The states of a gate, a closed set.
const (
	GateOpen     GateState = iota
	GateClosed             // nothing is sent until the next probe is due
	GateHalfOpen           // a probe is due or under way
	GateRamp               // the upstream is back, and gets step by step what it got before
	numGateStates
)

// ClosedBy is the evidence that closed a gate. Its String is a metric label.
type ClosedBy uint8

// The evidence, a closed set.
const (
	ClosedByNothing ClosedBy = iota
	ClosedByRefused          // no address takes connections
	ClosedByDial             // no connection for another reason
	ClosedByFailing          // nearly all attempts failed
	ClosedByStall            // no answer for far longer than usual
	ClosedByLost             // what was in flight was lost all at once
	numClosedBy
)

// NumGateStates and NumClosedBy are the sizes of the sets.
const (
	NumGateStates = int(numGateStates)
	NumClosedBy   = int(numClosedBy)
)

var gateStateTexts = [numGateStates]text{
	GateOpen:     {"open", "Requests pass."},
	GateClosed:   {"closed", "The upstream is down; requests wait or are refused until the next probe."},
	GateHalfOpen: {"half_open", "A single probe tries whether the upstream is back."},
	GateRamp:     {"ramp", "The upstream is back and gets more step by step."},
}

var closedByTexts = [numClosedBy]text{
	ClosedByNothing: {"none", "The gate was never closed."},
	ClosedByRefused: {"refused", "No address of the upstream took connections."},
	ClosedByDial:    {"dial", "No connection to the upstream could be made."},
	ClosedByFailing: {"failing", "Nearly all attempts failed: resets, timeouts, callers who left late, 502, 503 or 504 (RETRYPROXY_BREAKER_ON)."},
	ClosedByStall:   {"stall", "No answer came for far longer than usual."},
	ClosedByLost:    {"lost", "The connections of nearly all requests in flight ended at once, as when a process is killed."},
}

// String is the metric label. A value outside the set gives "invalid".
func (s GateState) String() string { return lookup(gateStateTexts[:], int(s)).label }

// Explain is one sentence for a reader of metrics.
func (s GateState) Explain() string { return lookup(gateStateTexts[:], int(s)).explain }

// String is the metric label. A value outside the set gives "invalid".
func (c ClosedBy) String() string { return lookup(closedByTexts[:], int(c)).label }

// Explain is one sentence for a reader of metrics.
func (c ClosedBy) Explain() string { return lookup(closedByTexts[:], int(c)).explain }

// GuardState is what a Guard knows, for metrics and tests.
type GuardState struct {
	Gate       GateState
	ClosedBy   ClosedBy            // the evidence of the last time
	Closed     [NumClosedBy]uint64 // how often the gate was closed, by evidence
	Reopened   uint64              // how often it began to open again
	Probes     uint64              // places given to probes
	Doubt      bool                // no answer came for longer than usual, and the gate is not closed: few pass
	Limit      int                 // requests at once; 0 = no limit binds
	Bound      uint64              // how often overload made the limit bind
	InFlight   int                 // places taken, abandoned ones included
	Abandoned  int                 // of these, those nobody waits for
	Waiting    int                 // counted by Enter and not ended by Next or Quit
	Remembered float64             // concurrency that the upstream was seen to bear, a mean over 1 s
	Usual      time.Duration       // median time to a response head; 0 = not yet known
}

// State is a consistent view.
func (g *Guard) State() GuardState {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := GuardState{
		Gate:       g.gate.state,
		ClosedBy:   g.gate.why,
		Closed:     g.gate.closed,
		Reopened:   g.gate.reopened,
		Probes:     g.gate.probes,
		Doubt:      g.doubt.on,
		Bound:      g.limiter.times,
		InFlight:   int(g.inFlight()),
		Abandoned:  int(g.lost.count),
		Waiting:    g.waiting,
		Remembered: g.usual.concurrency,
		Usual:      g.usual.median,
	}
	if g.limiter.bound {
		s.Limit = int(g.limiter.whole())
	}
	if g.options.Limit == LimitFixed && (s.Limit == 0 || s.Limit > g.options.Fixed) {
		s.Limit = g.options.Fixed
	}
	return s
}
