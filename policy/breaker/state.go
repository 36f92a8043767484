package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/internal/labels"
)

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
	OpenedByRefused          // no address accepts connections, or keeps them
	OpenedByDial             // no connection for another reason
	OpenedByFailing          // nearly all attempts fail
	OpenedByStall            // no response for far longer than usual
	OpenedByLost             // connections end without a response
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
	OpenedByRefused: {Label: "refused", Explain: "No address of the upstream took connections, or kept them."},
	OpenedByDial:    {Label: "dial", Explain: "No connection to the upstream could be made."},
	OpenedByFailing: {Label: "failing", Explain: "Nearly all attempts failed: timeouts, clients who left late, 502, 503 or 504."},
	OpenedByStall:   {Label: "stall", Explain: "No response came for far longer than usual."},
	OpenedByLost:    {Label: "lost", Explain: "Connections ended without a response: nearly all connections with requests in flight at once, as when a process is killed, or nearly all over some time."},
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
	Resets             uint64              // how often a success reset the waits between probes
	Suspect            bool                // no response for longer than usual while the breaker is closed: few requests pass
	ConcurrencyLimit   int                 // requests in flight at most, see window; 0 = no limit binds
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
	c := &g.core
	s := GuardState{
		Breaker:            c.state(),
		OpenedBy:           c.pace.why,
		Opened:             c.pace.opened,
		SlowStarts:         c.pace.slowStarts,
		Probes:             c.pace.probes,
		Resets:             c.pace.resets,
		Suspect:            c.window.phase == doubt,
		LimitBound:         c.window.bound,
		InFlight:           int(g.counters.inFlight()),
		Abandoned:          int(g.counters.abandoned()),
		Queued:             c.waiting.all,
		LearnedConcurrency: c.baseline.Concurrency,
		MedianLatency:      c.baseline.Median,
	}
	if c.window.limits() {
		s.ConcurrencyLimit = int(c.window.size)
	}
	if g.options.ConcurrencyLimit == ConcurrencyLimitFixed && (s.ConcurrencyLimit == 0 || s.ConcurrencyLimit > g.options.FixedLimit) {
		s.ConcurrencyLimit = g.options.FixedLimit
	}
	return s
}

// connecting reports whether the evidence is failed connections.
func (c OpenedBy) connecting() bool {
	return c == OpenedByRefused || c == OpenedByDial || c == OpenedByLost
}
