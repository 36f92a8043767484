package policy

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// LimitMode says how many requests a Guard lets be under way at once.
type LimitMode uint8

// The modes of a limit, a closed set.
const (
	LimitAdaptive LimitMode = iota // none until there is evidence that the upstream is overloaded; then what it bears
	LimitFixed                     // GuardOptions.Fixed, always; only a probe may be one more
	LimitOff                       // none; after an outage the gate still opens step by step
)

// GuardOptions set up a Guard. The zero value is the default: gate and
// adaptive limit on.
type GuardOptions struct {
	NoGate bool      // the gate never closes
	Limit  LimitMode // how the limit is found
	Fixed  int       // for LimitFixed: requests at once, 1 to 1 000 000
	// OwnProbe: probes are the user's own, taken with Guard.Probe. Enter and Next
	// then make no attempt the probe: whoever comes waits for it.
	OwnProbe bool
	// Connects: where connections were what failed, the user probes by connecting,
	// with Guard.Probe, and no attempt is the probe.
	Connects bool
	// Backoff is the wait before the next probe, k = failed probes since the last
	// success; nil: see gate.pause.
	Backoff Backoff
	// Failing are the statuses that are failures of the upstream; the zero value is
	// 502, 503 and 504.
	Failing FailingStatuses
	Rand    Rand // jitter of the probes; nil = Shared(). Used under the Guard's lock.
}

const maxFixed = 1_000_000

// Validate names what is out of range.
func (o GuardOptions) Validate() error {
	if o.Limit > LimitOff {
		return fmt.Errorf("limit mode %d is not known", o.Limit)
	}
	if o.Limit == LimitFixed && (o.Fixed < 1 || o.Fixed > maxFixed) {
		return fmt.Errorf("limit %d is not within 1 to %d", o.Fixed, maxFixed)
	}
	return nil
}

// Guard stands before one upstream and says of each attempt whether it may be
// sent now. It is two things in one, because both live on the same evidence
// and the same count of places: a gate, which closes while the upstream is
// down, lets a single probe through at a time and opens step by step; and a
// limit on how many requests are under way at once, which binds only on
// evidence of overload. docs/decisions/0005-gate-and-limit.md tells the rules
// and their reasons.
//
// An attempt takes a place with Enter before it is sent and gives it back with
// Leave when its response head came or it failed. What was sent and is no
// longer waited for keeps its place (Abandon), since the upstream still works
// on it. Who is told to wait stands in a line of the caller's (see Line) and is
// admitted through Next. The Guard has no timer: its user calls Expire at
// NextEvent.
//
// All methods are safe for concurrent use and do not allocate. While the gate
// is open and the limit does not bind, Enter and Leave take no lock. now is
// monotonic time of any origin not below 0, the same origin for all calls;
// calls may come slightly out of order.
type Guard struct {
	mode   atomic.Uint32 // modeSlow, modeSuspect: what the fast paths must not do alone
	tickAt atomic.Int64  // when the counters are next looked at
	_      [48]byte      // what follows is written by every request

	// Places taken and given back since the start; the difference is the
	// requests under way. They only grow, so each is one atomic addition.
	entered atomic.Int64
	_       [56]byte
	left    atomic.Int64
	sending atomic.Int64  // of those under way, requests that are not sent whole
	fresh   latencyWindow // of requests that left by the fast path

	acceptedAt atomic.Int64 // when the upstream last accepted a connection

	options GuardOptions

	mu             sync.Mutex // guards what follows
	gate           gate
	limiter        limiter
	usual          usual
	silence        silence
	evidence       evidence
	lost           lostPlaces
	comeback       comeback
	doubt          doubt
	pace           pace
	connections    connections
	burst          burst
	urls           urls
	turns          turns
	slowLeft       int64 // places given back other than by the fast path of Leave
	slowAnswered   int64 // of these, those that were answered
	unsent         int64 // of these, those that were never sent
	counted        int64 // fast leaves that evidence knows of
	foldedSent     int64 // how many had been sent and answered at the end of the last window
	foldedAnswered int64
	pendingAt      time.Duration // when pending requests were last looked for...
	pendingSent    int64         // ...and how many had been sent then
	peak           int64         // most places taken at any look since the last window
	waiting        int
	waitingParts   int // of these, requests that are not here whole
	eventAt        time.Duration
	window         latencySums // scratch
}

// Bits of Guard.mode.
const (
	modeSlow    = 1 << iota // the gate is not open, or a limit binds: every call takes the lock
	modeSuspect             // there were failures lately: Leave takes the lock
)

// NewGuard makes an open Guard that knows nothing yet. Invalid options are
// moved to the nearest valid ones; see GuardOptions.Validate.
func NewGuard(o GuardOptions) *Guard {
	if o.Rand == nil {
		o.Rand = Shared()
	}
	o.Fixed = max(1, min(o.Fixed, maxFixed))
	g := &Guard{options: o, eventAt: Forever}
	g.acceptedAt.Store(-1)
	g.connections.servedAt = -1
	g.gate.asks, g.gate.backoff = o.OwnProbe, o.Backoff
	g.publish(0)
	return g
}

// Verdict is what Enter says about an attempt.
type Verdict uint8

// The verdicts, a closed set.
const (
	// VerdictGo: a place is taken, send.
	VerdictGo Verdict = iota
	// VerdictProbe: a place is taken and this attempt is the one probe of a
	// gate that is not open. It must go over a fresh connection; while it
	// hangs, nothing else is sent.
	VerdictProbe
	// VerdictHold: the gate is not open. Stand in line (and then Next or Quit)
	// or Quit at once and refuse.
	VerdictHold
	// VerdictDoubt: no answer came for longer than usual. As VerdictHold, but
	// also where nobody is held it is worth a short wait: most likely the
	// upstream is up, and about a second later it is known.
	VerdictDoubt
	// VerdictQueue: the limit is reached. As VerdictHold, but the wait should
	// be short: the upstream is up and as busy as it bears.
	VerdictQueue
)

// Place is the right to have one attempt under way. It is a value: keep the
// last one that the Guard gave and give it back exactly once. The zero Place
// is none.
type Place struct {
	at    time.Duration // when it was taken
	kind  placeKind
	batch uint32 // kind placeAbandoned: which of lostPlaces
	probe uint32 // number of the probe it is; 0 = none
}

type placeKind uint8

const (
	placeNone placeKind = iota
	placeTaken
	placeAbandoned
	placeSending // its request is not sent whole, see Guard.Sending
)

// Taken reports whether p is a place at all.
func (p Place) Taken() bool { return p.kind != placeNone }

// Probe reports whether p was given to a probe.
func (p Place) Probe() bool { return p.probe != 0 }

// EndKind is how an attempt ended, as far as it tells about the upstream.
type EndKind uint8

// The kinds of ending, a closed set.
const (
	Answered   EndKind = iota // a final response head came; see Ending.Status
	Unsent                    // given back unused, nothing learnt: the caller left before it was sent, a pooled connection was found closed
	Connected                 // a probe that only connects got its connection
	Refused                   // no address of the upstream took a connection, however often it was tried
	DialFailed                // no connection to any address for another reason: time, route, name, TLS
	Reset                     // the connection ended after the request was sent, or what came was no response
	TimedOut                  // the attempt timeout passed; see Guard.Abandon
	Abandoned                 // the caller left; see Guard.Abandon
	numEndKinds
)

// Ending is how an attempt ended.
type Ending struct {
	Kind   EndKind
	Status int // of Answered: 100..999

	// Key tells URLs of the upstream apart, so that one that always fails is
	// not taken for the whole upstream: a hash of method and path. 0 =
	// unknown; then failures are judged by their share alone.
	Key uint32

	// Closed, with Abandon: the connection was closed, so no late answer can
	// come and the place will not be given back by Leave.
	Closed bool
}

// answeredWell reports whether e shows that the upstream works.
func (g *Guard) answeredWell(e Ending) bool {
	return e.Kind == Answered && (e.Status < 500 || !g.options.Failing.Has(e.Status))
}

// Signal tells the user of a Guard what to do after a call, bit by bit.
type Signal uint8

// The bits of a Signal.
const (
	// SignalWake: call Next for the head of the line until it says no.
	SignalWake Signal = 1 << iota
	// SignalEvent: NextEvent has changed.
	SignalEvent
)

// Request is what a Guard wants to know of a request before it is sent. The zero
// value is one that is here whole.
type Request struct {
	Key        uint32 // tells URLs apart, as Ending.Key; 0: unknown
	Unfinished bool   // not all of it has come from its client
}

// Enter asks for a place for an attempt. With VerdictGo and VerdictProbe the
// place is taken. With VerdictHold and VerdictQueue the Guard counts the
// attempt as waiting: the user must put it in its line before another Next
// (so Enter is called under the line's lock, and EnterFast before without it),
// look at NextEvent, and end the wait by exactly one of Next or Quit.
func (g *Guard) Enter(now time.Duration, r Request) (Place, Verdict) {
	if p, ok := g.EnterFast(now); ok {
		return p, VerdictGo
	}
	return g.enter(now, r)
}

// EnterFast takes a place when the gate is open and no limit binds; nothing
// has happened when it says no, and Enter is to be asked under the line's
// lock.
func (g *Guard) EnterFast(now time.Duration) (Place, bool) {
	if int64(now) >= g.tickAt.Load() {
		g.tick(now)
	}
	if g.mode.Load()&modeSlow != 0 {
		return Place{}, false
	}
	g.entered.Add(1)
	// The second look: whoever closes the gate sets the mode first and counts
	// the places after it, so a place is either counted or not taken.
	if g.mode.Load()&modeSlow != 0 {
		g.undone()
		return Place{}, false
	}
	return Place{at: now, kind: placeTaken}, true
}

// Leave gives a place back and tells what became of the attempt. It is called
// once the response head is there (streams, upgrades and long polls hold no
// place after it) or the attempt has failed.
func (g *Guard) Leave(p Place, now time.Duration, e Ending) Signal {
	switch {
	case p.kind != placeSending:
	case e.Kind == Refused, e.Kind == DialFailed: // which is not the request's doing
		p = g.Sent(p, p.at)
	default:
		return g.leaveUnfinished(now, e)
	}
	if g.mode.Load() != 0 || p.kind != placeTaken || p.probe != 0 || !g.answeredWell(e) {
		return g.leave(p, now, e)
	}
	g.fresh.add(now - p.at)
	g.left.Add(1)
	if e.Key != 0 {
		g.sample(now, e.Key)
	}
	if int64(now) >= g.tickAt.Load() {
		g.tick(now)
	}
	return 0
}
