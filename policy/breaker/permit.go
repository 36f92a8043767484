package breaker

import "time"

// Verdict is the result of Acquire for an attempt.
type Verdict uint8

// The verdicts, a closed set.
const (
	// VerdictGo: a permit is taken; send.
	VerdictGo Verdict = iota
	// VerdictProbe: a permit is taken and this attempt is the one probe of a breaker that
	// is not closed. It must use a fresh connection. While it hangs, nothing else is sent.
	VerdictProbe
	// VerdictBreakerOpen: the breaker is not closed. Queue the request (ended by Next or
	// CancelWait), or call CancelWait at once and refuse it.
	VerdictBreakerOpen
	// VerdictSuspect: there was no response for longer than usual, or the upstream has just come
	// back. Like VerdictBreakerOpen, but even without queueing a short wait is worthwhile. Most
	// likely the upstream is up, and about a second later it is known.
	VerdictSuspect
	// VerdictAtLimit: the limit is reached. Like VerdictBreakerOpen, but the wait should be
	// short: the upstream is up and fully loaded.
	VerdictAtLimit
)

// Permit is the right to have one attempt in flight. It is a value: keep the last one that
// the Guard returned for the attempt and release it exactly once. The zero Permit is none.
type Permit struct {
	at         time.Duration // when it was taken
	generation uint32
	probe      uint16 // number of its probe, of which 32768 differ; 0 = none
	kind       permitKind
}

type permitKind uint8

const (
	permitNone permitKind = iota
	permitTaken
	permitAbandoned
	permitSending // its request is not sent completely, see Guard.Sending
	permitCheck   // of no attempt: see connections.check
)

// Taken reports whether p is a permit at all.
func (p Permit) Taken() bool { return p.kind != permitNone }

// Probe reports whether p belongs to a probe.
func (p Permit) Probe() bool { return p.probe != 0 }

// Check reports whether p belongs to a check of the upstream after a lost connection.
func (p Permit) Check() bool { return p.kind == permitCheck }

// EndKind is how an attempt ended, as evidence about the upstream.
type EndKind uint8

// The kinds of ending, a closed set.
const (
	Responded  EndKind = iota // a final response header section arrived; see AttemptEnd.Status
	Unsent                    // released unused, no evidence: the client left before it was sent, or a pooled connection was found closed
	Connected                 // a probe got its connection, and nothing is sent on it
	Refused                   // no address of the upstream accepted a connection, after all tries
	DialFailed                // no connection to any address for another reason: time, route, name, TLS
	Dropped                   // a connection of a probe was accepted, and ended although nothing was sent on it
	Reset                     // the connection ended after the request was sent, or the bytes received were no response
	TimedOut                  // the attempt timeout passed; see Guard.Abandon
	Abandoned                 // the client left; see Guard.Abandon
	numEndKinds
)

// AttemptEnd is how an attempt ended.
type AttemptEnd struct {
	Kind   EndKind
	Status int // of Responded: 100..999

	// Key distinguishes URLs of the upstream, so that one that always fails is not taken
	// for the whole upstream. It is a hash of method and path. 0 = unknown; then only the
	// share of failures counts.
	Key uint32

	// Client distinguishes clients, as a hash. It is used if nothing but 500 comes.
	Client uint32

	// CutShort is used with Refused and DialFailed: the client's own deadline ended the dial
	// early. Then it counts as Unsent.
	CutShort bool

	// Unhealthy is used for probes that are no attempts: the response shows that the upstream
	// fails, whatever its status.
	Unhealthy bool

	// Closed is used with Abandon. The connection was closed, so no late response can come
	// and Release will not be called for the permit.
	Closed bool
}

// Signal is what the caller of a Guard has to do after a call, as bits.
type Signal uint8

// The bits of a Signal.
const (
	// SignalWake: call Next for the first request in the queue until it grants no permit.
	SignalWake Signal = 1 << iota
	// SignalEvent: NextEvent has changed.
	SignalEvent
	// SignalDown: the attempt failed, and the upstream is known to be down. So its retry costs
	// nothing: it waits for the breaker.
	SignalDown
)

// Request is what a Guard needs to know of a request before it is sent. The zero value is a
// complete request.
type Request struct {
	Key        uint32 // distinguishes URLs, like AttemptEnd.Key; 0: unknown
	Unfinished bool   // the client has not sent all of it
}
