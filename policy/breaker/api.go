package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/internal/labels"
)

// Next takes a permit for the first request in the queue, whose Request is r, if there is
// one. The verdict is VerdictGo, or VerdictProbe, which is for the next request that is
// complete. That request then leaves the queue. VerdictBreakerOpen and VerdictAtLimit
// change nothing, and asking again before the next SignalWake is useless. If the queue is
// empty, Next returns VerdictBreakerOpen.
func (g *Guard) Next(now time.Duration, r Request) (Permit, Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.core.waiting.any() {
		return Permit{}, VerdictBreakerOpen
	}
	g.core.refreshIfDue(now)
	g.core.expire(now)
	v := g.core.verdictHead(now)
	if v > VerdictProbe {
		g.core.publish(now)
		return Permit{}, v
	}
	g.core.waiting.add(-1, Request{Unfinished: v == VerdictGo && r.Unfinished})
	if v == VerdictGo {
		g.core.silence.admitted(now, &g.core.baseline, r.Key)
	}
	return g.core.issuePermit(now, v), v
}

// CancelWait ends the wait of a request without a permit. The client left, its time was up,
// it was dropped from the queue, or it was refused instead of being queued.
func (g *Guard) CancelWait(now time.Duration, r Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.waiting.add(-1, r)
	g.core.publish(now)
}

// Abandon records that nobody waits for an attempt that was sent: the client left
// (AttemptEnd.Kind Abandoned) or the attempt timeout passed (TimedOut). The upstream still
// works on it, so its permit stays taken until the upstream responds or closes, until a
// probe succeeds, or until a bound passes.
//
// Keep the connection, read on, and call Release with the Permit that Abandon returns: the
// late response of a stopped upstream is the first sign of its recovery. With
// AttemptEnd.Closed nobody reads on. Then the returned Permit is zero, and Release must not
// be called.
func (g *Guard) Abandon(p Permit, now time.Duration, e AttemptEnd) (Permit, Signal) {
	if p.kind == permitSending {
		return Permit{}, g.releaseUnfinished(now, e)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.kind != permitTaken {
		return p, 0
	}
	before := g.core.eventAt
	g.core.refreshIfDue(now)
	g.core.recordAbandoned(p, now, e)
	p.batch, p.kind = g.counters.abandoned.add(now), permitAbandoned
	if e.Closed {
		p = Permit{}
	}
	return p, g.core.finish(now, before)
}

// Probe takes the permit of the probe without an attempt. The caller may probe by
// connecting (Release with Connected, Refused or DialFailed), by a request of its own, or
// not at all. It returns false if no probe is due.
func (g *Guard) Probe(now time.Duration) (Permit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.breaker.expire(now)
	if !g.core.breaker.due() {
		return Permit{}, false
	}
	return g.core.issuePermit(now, VerdictProbe), true
}

// ProbePending reports whether the probe p is still the one in flight.
func (g *Guard) ProbePending(p Permit) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.probe != 0 && p.probe == g.core.breaker.probe
}

// ReplaceProbe discards the probe p early if it is still in flight, because the upstream is
// known to be at another address now. Another probe is due at once. p stays taken, and a
// late response to it still counts.
func (g *Guard) ReplaceProbe(p Permit, now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.probe == 0 || p.probe != g.core.breaker.probe {
		return 0
	}
	before := g.core.eventAt
	g.core.breaker.discardProbe()
	return g.core.finish(now, before)
}

// NextEvent returns when to call Expire, or Forever if nothing is due. It returns 0 if a
// queued request should have been admitted already and, with Options.ActiveProbe or
// ConnectProbe, while a probe is due. It changes only in calls that return a SignalEvent, a
// Verdict other than VerdictGo, or a probe.
func (g *Guard) NextEvent() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.eventAt
}

// BreakerClosed reports whether the breaker is closed. It takes no lock while the breaker
// is closed and no limit binds.
func (g *Guard) BreakerClosed() bool {
	if g.counters.mode.Load()&modeSlow == 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.breaker.state == Closed
}

// Expire applies what is due by now: a probe, permits whose bound has passed, the end of a
// limit that no longer binds. Calling it early or late does no harm.
func (g *Guard) Expire(now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.core.eventAt
	g.core.refresh(now)
	return g.core.finish(now, before)
}

// State is the state of the breaker. Its String is a metric label.
type State uint8

// The states of a breaker, a closed set.
const (
	Closed    State = iota
	Open            // nothing is sent until the next probe is due
	HalfOpen        // a probe is due or in flight
	SlowStart       // the upstream has recovered, and its load grows step by step
	numBreakerStates
)

// OpenedBy is the evidence that opens a breaker. Its String is a metric label.
type OpenedBy uint8

// The evidence, a closed set.
const (
	OpenedByNothing OpenedBy = iota
	OpenedByRefused          // no address accepts connections
	OpenedByDial             // no connection for another reason
	OpenedByFailing          // nearly all attempts fail
	OpenedByStall            // no response for far longer than usual
	OpenedByLost             // all requests in flight were lost at once
	numOpenedBy
)

// NumBreakerStates and NumOpenedBy are the sizes of the sets.
const (
	NumBreakerStates = int(numBreakerStates)
	NumOpenedBy      = int(numOpenedBy)
)

var breakerStateTexts = [numBreakerStates]labels.Text{
	Closed:    {Label: "closed", Explain: "Requests pass."},
	Open:      {Label: "open", Explain: "The upstream is down; requests wait or are refused until the next probe."},
	HalfOpen:  {Label: "half_open", Explain: "A single probe tries whether the upstream is back."},
	SlowStart: {Label: "slow_start", Explain: "The upstream is back and gets more requests step by step."},
}

var openedByTexts = [numOpenedBy]labels.Text{
	OpenedByNothing: {Label: "none", Explain: "The breaker was never opened."},
	OpenedByRefused: {Label: "refused", Explain: "No address of the upstream took connections."},
	OpenedByDial:    {Label: "dial", Explain: "No connection to the upstream could be made."},
	OpenedByFailing: {Label: "failing", Explain: "Nearly all attempts failed: resets, timeouts, clients who left late, 502, 503 or 504."},
	OpenedByStall:   {Label: "stall", Explain: "No response came for far longer than usual."},
	OpenedByLost:    {Label: "lost", Explain: "The connections of nearly all requests in flight ended at once, as when a process is killed."},
}

// String returns the metric label, or "invalid" for a value outside the set.
func (s State) String() string { return labels.Lookup(breakerStateTexts[:], int(s)).Label }

// Explain returns one sentence for a reader of metrics.
func (s State) Explain() string { return labels.Lookup(breakerStateTexts[:], int(s)).Explain }

// String returns the metric label, or "invalid" for a value outside the set.
func (c OpenedBy) String() string { return labels.Lookup(openedByTexts[:], int(c)).Label }

// Explain returns one sentence for a reader of metrics.
func (c OpenedBy) Explain() string { return labels.Lookup(openedByTexts[:], int(c)).Explain }

// GuardState is a snapshot of a Guard, for metrics and tests.
type GuardState struct {
	Breaker            State
	OpenedBy           OpenedBy            // the evidence of the last opening
	Opened             [NumOpenedBy]uint64 // how often the breaker was opened, by evidence
	SlowStarts         uint64              // how often slow start began
	Probes             uint64              // permits taken by probes
	Suspect            bool                // no response for longer than usual while the breaker is closed: few requests pass
	ConcurrencyLimit   int                 // requests in flight at most; 0 = no limit binds
	LimitBound         uint64              // how often overload bound the limit
	InFlight           int                 // permits taken, abandoned ones included
	Abandoned          int                 // those that no client waits for
	Queued             int                 // counted by Acquire and not ended by Next or CancelWait
	LearnedConcurrency float64             // concurrency that the upstream has sustained, a mean over 1 s
	MedianLatency      time.Duration       // median time to a response header section; 0 = not yet known
}

// State returns a consistent snapshot.
func (g *Guard) State() GuardState {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := GuardState{
		Breaker:            g.core.breaker.state,
		OpenedBy:           g.core.breaker.why,
		Opened:             g.core.breaker.opened,
		SlowStarts:         g.core.breaker.slowStarts,
		Probes:             g.core.breaker.probes,
		Suspect:            g.core.silence.suspect.on,
		LimitBound:         g.core.limiter.boundCount,
		InFlight:           int(g.counters.inFlight()),
		Abandoned:          int(g.counters.abandoned.count),
		Queued:             g.core.waiting.all,
		LearnedConcurrency: g.core.baseline.Concurrency,
		MedianLatency:      g.core.baseline.Median,
	}
	if g.core.limiter.bound {
		s.ConcurrencyLimit = int(g.core.limiter.wholeLimit())
	}
	if g.options.ConcurrencyLimit == ConcurrencyLimitFixed && (s.ConcurrencyLimit == 0 || s.ConcurrencyLimit > g.options.FixedLimit) {
		s.ConcurrencyLimit = g.options.FixedLimit
	}
	return s
}
