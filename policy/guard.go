package policy

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ConcurrencyLimitMode says how many requests a Guard lets be in flight at once.
type ConcurrencyLimitMode uint8

// The modes of a limit, a closed set.
const (
	ConcurrencyLimitAdaptive ConcurrencyLimitMode = iota // none until there is evidence that the upstream is overloaded; then what it bears
	ConcurrencyLimitFixed                                // GuardOptions.Fixed, always; only a probe may be one more
	ConcurrencyLimitOff                                  // none; after an outage the breaker still closes step by step
)

// GuardOptions set up a Guard. The zero value is the default: breaker and
// adaptive limit on.
type GuardOptions struct {
	NoBreaker        bool                 // the breaker never opens
	ConcurrencyLimit ConcurrencyLimitMode // how the limit is found
	FixedLimit       int                  // for ConcurrencyLimitFixed: requests at once, 1 to 1 000 000
	// ActiveProbe: probes are the user's own, taken with Guard.Probe. Enter and Next
	// then make no attempt the probe: whoever comes waits for it.
	ActiveProbe bool
	// ConnectProbe: where connections were what failed, the user probes by connecting,
	// with Guard.Probe, and no attempt is the probe.
	ConnectProbe bool
	// Backoff is the wait before the next probe, k = failed probes since the last
	// success; nil: see breaker.probeWait.
	Backoff Backoff
	// Failing are the statuses that are failures of the upstream; the zero value is
	// 502, 503 and 504.
	Failing FailingStatuses
	Rand    Rand // jitter of the probes; nil = Shared(). Used under the Guard's lock.
}

const maxFixed = 1_000_000

// Validate names what is out of range.
func (o GuardOptions) Validate() error {
	if o.ConcurrencyLimit > ConcurrencyLimitOff {
		return fmt.Errorf("limit mode %d is not known", o.ConcurrencyLimit)
	}
	if o.ConcurrencyLimit == ConcurrencyLimitFixed && (o.FixedLimit < 1 || o.FixedLimit > maxFixed) {
		return fmt.Errorf("limit %d is not within 1 to %d", o.FixedLimit, maxFixed)
	}
	return nil
}

// Guard stands before one upstream and says of each attempt whether it may be
// sent now. It is two things in one, because both live on the same evidence
// and the same count of permits: a circuit breaker, which opens while the upstream is
// down, lets a single probe through at a time and closes step by step; and a
// limit on how many requests are in flight at once, which binds only on
// evidence of overload. docs/decisions/0005-breaker-and-limit.md tells the rules
// and their reasons.
//
// An attempt takes a permit with Enter before it is sent and gives it back with
// Leave when its response header section came or it failed. What was sent and is no
// longer waited for keeps its permit (Abandon), since the upstream still works
// on it. Who is told to wait waits in a queue of the client's (see Line) and is
// admitted through Next. The Guard has no timer: its user calls Expire at
// NextEvent.
//
// All methods are safe for concurrent use and do not allocate. While the breaker
// is closed and the limit does not bind, Acquire and Release take no lock. now is
// monotonic time of any origin not below 0, the same origin for all calls;
// calls may come slightly out of order.
type Guard struct {
	mode   atomic.Uint32 // modeSlow, modeRecentFailures: what the fast paths must not do alone
	tickAt atomic.Int64  // when the counters are next looked at
	_      [48]byte      // what follows is written by every request

	// Places taken and given back since the start; the difference is the
	// requests in flight. They only grow, so each is one atomic addition.
	acquired atomic.Int64
	_        [56]byte
	released atomic.Int64
	sending  atomic.Int64  // of those in flight, requests that are not sent whole
	fresh    latencyWindow // of requests that left by the fast path

	lastAcceptAt atomic.Int64 // when the upstream last accepted a connection

	options GuardOptions

	mu                sync.Mutex // guards what follows
	breaker           breaker
	limiter           concurrencyLimiter
	baseline          baseline
	stall             stallDetector
	evidence          evidence
	abandoned         abandonedPermits
	recovery          recoveryLatencies
	suspect           suspectState
	pace              pace
	connections       connections
	lossBurst         lossBurst
	urls              urls
	slowReleased      int64 // permits given back other than by the fast path of Leave
	slowResponded     int64 // of these, those that were answered
	unsent            int64 // of these, those that were never sent
	counted           int64 // fast leaves that evidence knows of
	foldedSent        int64 // how many had been sent and answered at the end of the last window
	foldedResponded   int64
	pendingAt         time.Duration // when pending requests were last looked for...
	pendingSent       int64         // ...and how many had been sent then
	peak              int64         // most permits taken at any look since the last window
	waiting           int
	waitingUnfinished int // of these, requests that are not here whole
	eventAt           time.Duration
	window            latencySums // scratch
}

// Bits of Guard.mode.
const (
	modeSlow           = 1 << iota // the breaker is not closed, or a limit binds: every call takes the lock
	modeRecentFailures             // there were failures lately: Leave takes the lock
)

// NewGuard makes a Guard with a closed breaker that knows nothing yet. Invalid options are
// moved to the nearest valid ones; see GuardOptions.Validate.
func NewGuard(o GuardOptions) *Guard {
	if o.Rand == nil {
		o.Rand = Shared()
	}
	o.FixedLimit = max(1, min(o.FixedLimit, maxFixed))
	g := &Guard{options: o, eventAt: Forever}
	g.lastAcceptAt.Store(-1)
	g.connections.servedAt = -1
	g.breaker.activeProbe, g.breaker.backoff = o.ActiveProbe, o.Backoff
	g.publish(0)
	return g
}

// Verdict is what Enter says about an attempt.
type Verdict uint8

// The verdicts, a closed set.
const (
	// VerdictGo: a permit is taken, send.
	VerdictGo Verdict = iota
	// VerdictProbe: a permit is taken and this attempt is the one probe of a
	// breaker that is not closed. It must go over a fresh connection; while it
	// hangs, nothing else is sent.
	VerdictProbe
	// VerdictBreakerOpen: the breaker is not closed. Stand in the queue (and then Next or Quit)
	// or Quit at once and refuse.
	VerdictBreakerOpen
	// VerdictSuspect: no response came for longer than usual. As VerdictBreakerOpen, but
	// also where nobody is held it is worth a short wait: most likely the
	// upstream is up, and about a second later it is known.
	VerdictSuspect
	// VerdictAtLimit: the limit is reached. As VerdictBreakerOpen, but the wait should
	// be short: the upstream is up and as busy as it bears.
	VerdictAtLimit
)

// Permit is the right to have one attempt in flight. It is a value: keep the
// last one that the Guard gave and give it back exactly once. The zero Place
// is none.
type Permit struct {
	at    time.Duration // when it was taken
	kind  permitKind
	batch uint32 // kind permitAbandoned: which of abandonedPermits
	probe uint32 // number of the probe it is; 0 = none
}

type permitKind uint8

const (
	permitNone permitKind = iota
	permitTaken
	permitAbandoned
	permitSending // its request is not sent whole, see Guard.Sending
)

// Taken reports whether p is a place at all.
func (p Permit) Taken() bool { return p.kind != permitNone }

// Probe reports whether p was given to a probe.
func (p Permit) Probe() bool { return p.probe != 0 }

// EndKind is how an attempt ended, as far as it tells about the upstream.
type EndKind uint8

// The kinds of ending, a closed set.
const (
	Responded  EndKind = iota // a final response header section came; see AttemptEnd.Status
	Unsent                    // given back unused, nothing learnt: the client left before it was sent, a pooled connection was found closed
	Connected                 // a probe that only connects got its connection
	Refused                   // no address of the upstream took a connection, however often it was tried
	DialFailed                // no connection to any address for another reason: time, route, name, TLS
	Reset                     // the connection ended after the request was sent, or what came was no response
	TimedOut                  // the attempt timeout passed; see Guard.Abandon
	Abandoned                 // the client left; see Guard.Abandon
	numEndKinds
)

// AttemptEnd is how an attempt ended.
type AttemptEnd struct {
	Kind   EndKind
	Status int // of Answered: 100..999

	// Key tells URLs of the upstream apart, so that one that always fails is
	// not taken for the whole upstream: a hash of method and path. 0 =
	// unknown; then failures are judged by their share alone.
	Key uint32

	// Closed, with Abandon: the connection was closed, so no late response can
	// come and the place will not be given back by Leave.
	Closed bool
}

// isSuccess reports whether e shows that the upstream works.
func (g *Guard) isSuccess(e AttemptEnd) bool {
	return e.Kind == Responded && (e.Status < 500 || !g.options.Failing.Has(e.Status))
}

// Signal tells the user of a Guard what to do after a call, bit by bit.
type Signal uint8

// The bits of a Signal.
const (
	// SignalWake: call Next for the head of the queue until it says no.
	SignalWake Signal = 1 << iota
	// SignalEvent: NextEvent has changed.
	SignalEvent
)

// Request is what a Guard wants to know of a request before it is sent. The zero
// value is one that is here whole.
type Request struct {
	Key        uint32 // tells URLs apart, as AttemptEnd.Key; 0: unknown
	Unfinished bool   // not all of it has come from its client
}

// Acquire asks for a place for an attempt. With VerdictGo and VerdictProbe the
// place is taken. With VerdictBreakerOpen and VerdictAtLimit the Guard counts the
// attempt as waiting: the user must put it in its queue before another Next
// (so Enter is called under the queue's lock, and AcquireFast before without it),
// look at NextEvent, and end the wait by exactly one of Next or Quit.
func (g *Guard) Acquire(now time.Duration, r Request) (Permit, Verdict) {
	if p, ok := g.AcquireFast(now); ok {
		return p, VerdictGo
	}
	return g.acquire(now, r)
}

// AcquireFast takes a permit when the breaker is closed and no limit binds; nothing
// has happened when it says no, and Enter is to be asked under the queue's
// lock.
func (g *Guard) AcquireFast(now time.Duration) (Permit, bool) {
	if int64(now) >= g.tickAt.Load() {
		g.tick(now)
	}
	if g.mode.Load()&modeSlow != 0 {
		return Permit{}, false
	}
	g.acquired.Add(1)
	// The second look: whoever opens the breaker sets the mode first and counts
	// the permits after it, so a permit is either counted or not taken.
	if g.mode.Load()&modeSlow != 0 {
		g.undoAcquire()
		return Permit{}, false
	}
	return Permit{at: now, kind: permitTaken}, true
}

// Release releases a permit and tells what became of the attempt. It is called
// once the response header section is there (streams, upgrades and long polls hold no
// place after it) or the attempt has failed.
func (g *Guard) Release(p Permit, now time.Duration, e AttemptEnd) Signal {
	switch {
	case p.kind != permitSending:
	case e.Kind == Refused, e.Kind == DialFailed: // which is not the request's doing
		p = g.Sent(p, p.at)
	default:
		return g.releaseUnfinished(now, e)
	}
	if g.mode.Load() != 0 || p.kind != permitTaken || p.probe != 0 || !g.isSuccess(e) {
		return g.release(p, now, e)
	}
	g.fresh.add(now - p.at)
	g.released.Add(1)
	if e.Key != 0 {
		g.sample(now, e.Key)
	}
	if int64(now) >= g.tickAt.Load() {
		g.tick(now)
	}
	return 0
}
