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
	ConcurrencyLimitFixed                                // Options.FixedLimit, always; only a probe may exceed it by one, and incomplete requests take at most half
	ConcurrencyLimitOff                                  // no limit; after an outage the breaker still closes step by step
)

// Options configures a Guard. The zero value is the default: breaker and adaptive limit on.
type Options struct {
	NoBreaker        bool                 // the breaker never opens
	ConcurrencyLimit ConcurrencyLimitMode // how the limit is determined
	FixedLimit       int                  // for ConcurrencyLimitFixed: requests in flight, 1 to 1 000 000
	// ActiveProbe means that the caller sends all probes, taken with Guard.Probe. Acquire and
	// Next then never return VerdictProbe: every request waits for the probe.
	ActiveProbe bool
	Rand        backoff.Rand // jitter of the probes; nil = backoff.Shared(). Used under the Guard's lock.
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
	g.core.limiter.options = &g.options
	g.core.connections.lastAcceptAt.Store(-1)
	g.core.connections.servedAt = -1
	g.core.connections.cutLast = -2 * cutDialTime // none yet
	g.core.breaker.activeProbe = o.ActiveProbe
	g.core.publish(0)
	return g
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
	return Permit{at: now, kind: permitTaken}, true
}

// Release releases a permit and records how the attempt ended. Call it once the response
// header section is there or the attempt has failed. Streams, upgrades and long polls hold
// no permit after their response headers.
func (g *Guard) Release(p Permit, now time.Duration, e AttemptEnd) Signal {
	switch {
	case p.kind != permitSending:
	case e.Kind == Refused, e.Kind == DialFailed: // not caused by the request
		p = g.counters.sentWhole(p, p.at)
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

// acquire is Acquire under the lock.
func (g *Guard) acquire(now time.Duration, r Request) (Permit, Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.refreshIfDue(now)
	g.core.expire(now)
	v := g.core.verdict(now, false, !r.Unfinished)
	if v == VerdictSuspect && g.core.silence.admitsTrial(now, &g.core.baseline, r) && !g.core.limiter.atFixed(&g.counters, true) {
		v, g.core.silence.suspect.trialUsed = VerdictGo, true
	}
	if v == VerdictGo {
		g.core.silence.admitted(now, &g.core.baseline, r.Key)
	}
	if v <= VerdictProbe {
		return g.core.issuePermit(now, v, !r.Unfinished), v
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
	if e.CutShort && !g.core.cutDialShows(p.at, now) {
		e.Kind = Unsent
	}
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

// Next takes a permit for the first request in the queue, whose Request is r, if there is
// one. The verdict is VerdictGo or VerdictProbe. With whole, the permit is for the first
// complete request instead. That request then leaves the queue. VerdictBreakerOpen and
// VerdictAtLimit change nothing, and asking again before the next SignalWake is useless. If
// the queue is empty, Next returns VerdictBreakerOpen.
func (g *Guard) Next(now time.Duration, r Request) (p Permit, v Verdict, whole bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.core.waiting.any() {
		return Permit{}, VerdictBreakerOpen, false
	}
	g.core.refreshIfDue(now)
	g.core.expire(now)
	v = g.core.verdictHead(now)
	if v > VerdictProbe {
		g.core.publish(now)
		return Permit{}, v, false
	}
	whole = v == VerdictProbe || r.Unfinished && g.core.waiting.anyWhole() && g.core.verdict(now, true, false) != VerdictGo
	if whole {
		r = Request{} // its key is not known
	}
	g.core.waiting.add(-1, r)
	if v == VerdictGo {
		g.core.silence.admitted(now, &g.core.baseline, r.Key)
	}
	return g.core.issuePermit(now, v, !r.Unfinished), v, whole
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
// works on it, so its permit stays taken until slow start begins or until a bound passes.
//
// For a probe, keep the connection, read on, and call Release with the Permit that Abandon
// returns: the late response of a stopped upstream is the first sign of its recovery. With
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
	g.counters.abandoned.add(now)
	p.kind = permitAbandoned
	if e.Closed {
		p = Permit{}
	}
	return p, g.core.finish(now, before)
}

// NextEvent returns when to call Expire, or Forever if nothing is due. It returns 0 if a
// queued request should have been admitted already, and while Guard.Probe has a probe to
// take. It changes only in calls that return a SignalEvent, a Verdict other than VerdictGo,
// or a probe.
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

// WantsKey reports whether AttemptEnd.Key of a good response is useful now.
func (g *Guard) WantsKey(now time.Duration) bool {
	return g.counters.mode.Load() != 0 || int64(now) >= g.core.silence.urls.sampleAt.Load()
}

// sample records the URL of a good response released on the fast path.
func (g *Guard) sample(now time.Duration, key uint32) {
	if g.mu.TryLock() {
		g.core.silence.urls.recordResponse(now, key)
		g.mu.Unlock()
	}
}

// tick refreshes the state if that is due, unless another goroutine holds the lock.
func (g *Guard) tick(now time.Duration) {
	if !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if g.core.refreshIfDue(now) {
		g.core.publish(now)
	}
}

// An incomplete request cannot be answered, and its duration depends on its client. So it
// is no evidence: it is not missing in a silence, its failure does not count, and its
// latency begins when it is sent completely. It keeps its permit all the time, since it
// occupies the upstream. A limit counts it apart from complete ones, see limits.allows.
//
// It is not the probe either, since other requests would wait for its client. If no
// complete request waits, one is admitted now and then. Once it is sent completely, it is
// evidence like any other request sent after the breaker opened.

// Sending records that the attempt with permit p, just taken, is sent before its request is
// complete. The returned Permit replaces p.
func (g *Guard) Sending(p Permit) Permit {
	if p.kind == permitTaken {
		p = g.counters.addSending(p)
	}
	return p
}

// Sent records that the request of the attempt with permit p was sent completely at the
// time at. The returned Permit replaces p.
func (g *Guard) Sent(p Permit, at time.Duration) (Permit, Signal) {
	p = g.counters.sentWhole(p, at)
	if g.counters.mode.Load()&modeSlow == 0 {
		return p, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return p, g.core.finish(at, g.core.eventAt)
}

// Sending reports whether the request of the attempt is not known to be sent completely.
func (p Permit) Sending() bool { return p.kind == permitSending }

// releaseUnfinished releases the permit of an attempt whose request was not sent
// completely.
func (g *Guard) releaseUnfinished(now time.Duration, e AttemptEnd) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counters.releaseUnfinished(e.Kind == Responded)
	before := g.core.eventAt
	g.core.refreshIfDue(now)
	return g.core.finish(now, before)
}
