// Package breaker decides which attempts at one upstream may begin. Guard combines the
// circuit breaker, with its evidence, probes and slow start, and the concurrency limit. It
// opens no connection, reads no clock and has no timer. Its caller passes the time, keeps
// the queue, and does what a Signal asks for.
package breaker

import (
	"fmt"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// ConcurrencyLimitMode is how a Guard limits the requests in flight.
type ConcurrencyLimitMode uint8

// The modes of a limit, a closed set.
const (
	ConcurrencyLimitAdaptive ConcurrencyLimitMode = iota // no limit until there is evidence of overload; then what the upstream sustains
	ConcurrencyLimitFixed                                // Options.FixedLimit, always; only a probe may exceed it by one
	ConcurrencyLimitOff                                  // no limit; after an outage the breaker still closes step by step
)

// Options configures a Guard. The zero value is the default: breaker and adaptive limit on.
type Options struct {
	NoBreaker        bool                 // the breaker never opens
	ConcurrencyLimit ConcurrencyLimitMode // how the limit is determined
	FixedLimit       int                  // for ConcurrencyLimitFixed: requests in flight, 1 to 1 000 000
	// ActiveProbe means that the caller sends the probes, taken with Guard.Probe. Acquire
	// and Next then never return VerdictProbe: every request waits for the probe.
	ActiveProbe bool
	// ConnectProbe means that after failed connections the caller probes by connecting,
	// with Guard.Probe, and no attempt is the probe.
	ConnectProbe bool
	Rand         backoff.Rand // jitter of the probes; nil = backoff.Shared(). Used under the Guard's lock.
}

const maxFixed = 1_000_000

// Validate returns an error that names the value out of range.
func (o Options) Validate() error {
	if o.ConcurrencyLimit > ConcurrencyLimitOff {
		return fmt.Errorf("limit mode %d is not known", o.ConcurrencyLimit)
	}
	if o.ConcurrencyLimit == ConcurrencyLimitFixed && (o.FixedLimit < 1 || o.FixedLimit > maxFixed) {
		return fmt.Errorf("limit %d is not within 1 to %d", o.FixedLimit, maxFixed)
	}
	return nil
}

// Guard decides for each attempt at one upstream whether it may be sent now. It combines
// two mechanisms, because both use the same evidence and the same count of permits. A
// circuit breaker opens while the upstream fails, admits a single probe at a time and
// closes step by step. A limit on the requests in flight binds only on evidence of
// overload. docs/decisions/0005-breaker-and-limit.md explains the rules and their reasons.
//
// An attempt takes a permit with Acquire before it is sent. It gives it back with Release
// when its response header section arrived or it failed. If it was sent and its client no
// longer waits, it keeps its permit (Abandon), since the upstream still works on it. A
// fixed limit does not count it, unless there is no circuit breaker. A request that must
// wait is queued by the caller and admitted by Next. The Guard has no timer: its caller
// calls Expire at NextEvent.
//
// All methods are safe for concurrent use and do not allocate. While the breaker is closed
// and the limit does not bind, Acquire and Release take no lock. now is monotonic time of
// any origin not below 0, with the same origin for all calls. Calls may come slightly out
// of order.
//
// Its own methods are the lock and the fast paths. The rules are in core.
type Guard struct {
	counters counters
	options  Options // never changed after New

	mu   sync.Mutex // guards core, and the fields of counters that say so
	core core
}

// New returns a Guard with a closed breaker and no baseline. Invalid options are moved to
// the nearest valid ones; see Options.Validate.
func New(o Options) *Guard {
	if o.Rand == nil {
		o.Rand = backoff.Shared()
	}
	o.FixedLimit = max(1, min(o.FixedLimit, maxFixed))
	g := &Guard{options: o}
	g.core.counters, g.core.options, g.core.eventAt = &g.counters, &g.options, backoff.Forever
	g.core.limiter.mode, g.core.limiter.fixed, g.core.limiter.countAbandoned = o.ConcurrencyLimit, int64(o.FixedLimit), o.NoBreaker
	g.core.connections.lastAcceptAt.Store(-1)
	g.core.connections.servedAt = -1
	g.core.breaker.activeProbe, g.core.breaker.connectProbe = o.ActiveProbe, o.ConnectProbe
	g.core.publish(0)
	return g
}

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
	// VerdictSuspect: there was no response for longer than usual. Like VerdictBreakerOpen,
	// but even without queueing a short wait is worthwhile. Most likely the upstream is up,
	// and about a second later it is known.
	VerdictSuspect
	// VerdictAtLimit: the limit is reached. Like VerdictBreakerOpen, but the wait should be
	// short: the upstream is up and fully loaded.
	VerdictAtLimit
)

// Permit is the right to have one attempt in flight. It is a value: keep the last one that
// the Guard returned for the attempt and release it exactly once. The zero Permit is none.
type Permit struct {
	at    time.Duration // when it was taken
	kind  permitKind
	batch uint32 // for permitAbandoned: its batch in abandonedPermits
	probe uint32 // number of its probe; 0 = none
}

type permitKind uint8

const (
	permitNone permitKind = iota
	permitTaken
	permitAbandoned
	permitSending // its request is not sent completely, see Guard.Sending
)

// Taken reports whether p is a permit at all.
func (p Permit) Taken() bool { return p.kind != permitNone }

// Probe reports whether p belongs to a probe.
func (p Permit) Probe() bool { return p.probe != 0 }

// EndKind is how an attempt ended, as evidence about the upstream.
type EndKind uint8

// The kinds of ending, a closed set.
const (
	Responded  EndKind = iota // a final response header section arrived; see AttemptEnd.Status
	Unsent                    // released unused, no evidence: the client left before it was sent, or a pooled connection was found closed
	Connected                 // a probe got its connection, and nothing is sent on it
	Refused                   // no address of the upstream accepted a connection, after all tries
	DialFailed                // no connection to any address for another reason: time, route, name, TLS
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
)

// Request is what a Guard needs to know of a request before it is sent. The zero value is a
// complete request.
type Request struct {
	Key        uint32 // distinguishes URLs, like AttemptEnd.Key; 0: unknown
	Unfinished bool   // the client has not sent all of it
}

// Acquire asks for a permit for an attempt. VerdictGo and VerdictProbe take it. With any
// other verdict the Guard counts the attempt as waiting. The caller must then put it in its
// queue before another Next, look at NextEvent, and end the wait by exactly one of Next or
// CancelWait. So call Acquire under the queue's lock, and AcquireFast before it without
// that lock.
func (g *Guard) Acquire(now time.Duration, r Request) (Permit, Verdict) {
	if p, ok := g.AcquireFast(now); ok {
		return p, VerdictGo
	}
	return g.acquire(now, r)
}

// AcquireFast takes a permit if the breaker is closed and no limit binds. If it returns
// false, nothing has changed; call Acquire under the queue's lock.
func (g *Guard) AcquireFast(now time.Duration) (Permit, bool) {
	if int64(now) >= g.counters.tickAt.Load() {
		g.tick(now)
	}
	if g.counters.mode.Load()&modeSlow != 0 {
		return Permit{}, false
	}
	g.counters.acquired.Add(1)
	// Check again: a goroutine that opens the breaker sets the mode first and counts the
	// permits after it. So a permit is either counted or not taken.
	if g.counters.mode.Load()&modeSlow != 0 {
		g.undoAcquire()
		return Permit{}, false
	}
	return Permit{at: now, kind: permitTaken}, true
}

// Release releases a permit and records how the attempt ended. Call it once the response
// header section is there or the attempt has failed. Streams, upgrades and long polls hold
// no permit after their response headers.
func (g *Guard) Release(p Permit, now time.Duration, e AttemptEnd) Signal {
	switch {
	case p.kind != permitSending:
	case e.Kind == Refused, e.Kind == DialFailed: // not caused by the request
		p = g.Sent(p, p.at)
	default:
		return g.releaseUnfinished(now, e)
	}
	if g.counters.mode.Load() != 0 || p.kind != permitTaken || p.probe != 0 || !e.isSuccess() {
		return g.release(p, now, e)
	}
	g.counters.fresh.Add(now - p.at)
	g.counters.released.Add(1)
	if e.Key != 0 {
		g.sample(now, e.Key)
	}
	if int64(now) >= g.counters.tickAt.Load() {
		g.tick(now)
	}
	return 0
}

// undoAcquire reverts what AcquireFast counted.
func (g *Guard) undoAcquire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counters.undoAcquire()
}

// acquire is Acquire under the lock.
func (g *Guard) acquire(now time.Duration, r Request) (Permit, Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.refreshIfDue(now)
	g.core.expire(now)
	v := g.core.verdict(now, false, !r.Unfinished)
	if v == VerdictSuspect && g.core.silence.admitsTrial(now, &g.core.baseline, r) && !g.core.limiter.atFixed(&g.counters) {
		v, g.core.silence.suspect.trialUsed = VerdictGo, true
	}
	if v == VerdictGo {
		g.core.silence.admitted(now, &g.core.baseline, r.Key)
	}
	if v <= VerdictProbe {
		return g.core.issuePermit(now, v), v
	}
	g.core.waiting.add(1, r)
	if v != VerdictSuspect {
		g.core.limiter.recordWait()
	}
	g.core.publish(now)
	return Permit{}, v
}

// release is Release under the lock.
func (g *Guard) release(p Permit, now time.Duration, e AttemptEnd) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.counters.release(p, e.Kind) {
		return 0
	}
	if e.Kind == Unsent || e.Kind == Connected {
		g.core.silence.stall.unsent(p.at)
	}
	before := g.core.eventAt
	g.core.refreshIfDue(now)
	g.core.recordEnd(p, now, e)
	return g.core.finish(now, before)
}

// isSuccess reports whether e shows that the upstream works: 502, 503 and 504 are failures of the
// upstream as a whole, other statuses concern one request.
func (e AttemptEnd) isSuccess() bool {
	return e.Kind == Responded && (e.Status < 502 || e.Status > 504)
}
