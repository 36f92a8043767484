// Package breaker decides which attempts at one upstream may begin. Guard is one window, the
// number of attempts that may be in flight, and what moves it: the circuit breaker with its
// evidence, probes and slow start, and the concurrency limit. It opens no connection, reads no
// clock and has no timer. Its caller passes the time, keeps the queue, and does what a Signal
// asks for.
package breaker

import (
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Guard decides for each attempt at one upstream whether it may be sent now.
// docs/decisions/0005-breaker-and-limit.md has the state chart, docs/explanation/breaker.md the
// rules and their reasons.
//
// An attempt takes a permit with Acquire before it is sent. It gives it back with Release
// when its response header section arrived or it failed. If it was sent and its client no
// longer waits, it keeps its permit (Abandon), since the upstream still works on it. A
// fixed limit does not count it, unless there is no circuit breaker. A request that must
// wait is queued by the caller and admitted by Next. The Guard has no timer: its caller
// calls Expire at NextEvent.
//
// All methods are safe for concurrent use. While the window does not bind, Acquire and
// Release take no lock, and nothing allocates. now is monotonic time of any origin not below
// 0, with the same origin for all calls. Calls may come slightly out of order.
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
	c := &g.core
	c.counters, c.options, c.eventAt = &g.counters, &g.options, backoff.Forever
	c.connections.acceptedAt.Store(-1)
	c.connections.servedAt, c.silence.lastAt = -1, -1
	c.publish(0)
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
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.core
	c.refreshIfDue(now)
	c.expire(now)
	v := c.verdict(now, r, false)
	if v <= VerdictProbe {
		return c.issue(now, v, r), v
	}
	c.waiting.add(1, r)
	c.window.waitedAt = now
	c.publish(now)
	return Permit{}, v
}

// AcquireFast takes a permit if the window does not bind. If it returns false, nothing has
// changed; call Acquire under the queue's lock.
func (g *Guard) AcquireFast(now time.Duration) (Permit, bool) {
	if int64(now) >= g.counters.tickAt.Load() && !g.tick(now) {
		return Permit{}, false // after a pause it would count as sent before that
	}
	if g.counters.mode.Load()&modeSlow != 0 {
		return Permit{}, false
	}
	return Permit{at: now, generation: g.counters.acquire(), kind: permitTaken}, true
}

// Line is the caller's queue.
type Line interface {
	// Pick removes the first request for which fits returns true, in the order of the queue,
	// and returns it. It reports false if there is none.
	Pick(fits func(Request) bool) (Request, bool)
}

// Next takes a permit for a request in the queue, if there is one, and makes line pick it, with
// the Guard's lock held. The verdict is VerdictGo or VerdictProbe, and any other one changes
// nothing: asking again before the next SignalWake is useless.
func (g *Guard) Next(now time.Duration, line Line) (Permit, Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.core
	c.refreshIfDue(now)
	c.expire(now)
	p, v := c.next(now, line)
	c.publish(now)
	return p, v
}

// TakeLast takes a permit for a request whose time in the queue is over, if a place for it became
// free at that moment, or if the only evidence against the upstream is its silence. It may be slow,
// and a request that is sent may be answered, while one that is refused is lost. But not if clients
// do not wait that long.
func (g *Guard) TakeLast(now time.Duration, r Request) (Permit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.core
	if c.verdict(now, r, true) != VerdictGo && (!c.onlySilent() || c.atFixed(!r.Unfinished)) {
		return Permit{}, false
	}
	return c.issue(now, VerdictGo, r), true
}

// CancelWait ends the wait of a request without a permit. The client left, its time was up,
// it was dropped from the queue, or it was refused instead of being queued.
func (g *Guard) CancelWait(now time.Duration, r Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.waiting.add(-1, r)
	g.core.publish(now)
}

// An incomplete request cannot be answered, and its duration depends on its client. So it is
// no evidence: it is not missing in a silence, its failure does not count, its latency begins
// when it is sent completely, and it is never the probe. It keeps its permit all the time,
// since it occupies the upstream.

// Sending records that the attempt with permit p, just taken, is sent before its request is
// complete. The returned Permit replaces p.
func (g *Guard) Sending(p Permit) Permit {
	return g.counters.beginSending(p)
}

// Sent records that the request of the attempt with permit p was sent completely at the
// time at. The returned Permit replaces p.
func (g *Guard) Sent(p Permit, at time.Duration) (Permit, Signal) {
	if int64(at) >= g.counters.tickAt.Load() { // after a pause it would count as sent before that
		g.mu.Lock()
		g.core.beginIfDue(at)
		g.mu.Unlock()
	}
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

// Release releases a permit and records how the attempt ended. Call it once the response
// header section is there or the attempt has failed. Streams, upgrades and long polls hold
// no permit after their response headers.
func (g *Guard) Release(p Permit, now time.Duration, e AttemptEnd) Signal {
	if p.kind == permitSending && (e.Kind == Refused || e.Kind == DialFailed) { // not caused by the request
		p = g.counters.sentWhole(p, p.at)
	}
	if g.counters.mode.Load() != 0 || p.kind != permitTaken || p.probe != 0 || !g.options.On.plain(e) {
		return g.release(p, now, e)
	}
	g.counters.fresh.Add(now - p.at)
	g.counters.end(p)
	if e.Key != 0 && g.mu.TryLock() {
		g.core.urls.responded(now, e.Key)
		g.mu.Unlock()
	}
	if int64(now) >= g.counters.tickAt.Load() {
		g.tick(now)
	}
	return 0
}

// release is Release under the lock.
func (g *Guard) release(p Permit, now time.Duration, e AttemptEnd) Signal {
	if p.kind == permitNone {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.core.eventAt
	g.core.refreshIfDue(now)
	down := g.core.end(p, now, e)
	return g.core.finish(now, before) | down
}

// Abandon records that nobody waits for an attempt that was sent: the client left
// (AttemptEnd.Kind Abandoned) or the attempt timeout passed (TimedOut). The upstream still
// works on it, so its permit stays taken until a bound passes.
//
// If WantsLate returns true, keep the connection, read on, and call Release with the Permit
// that Abandon returns: the late response of a stopped upstream is the first sign of its
// recovery. With AttemptEnd.Closed nobody reads on. Then the returned Permit is zero, and
// Release must not be called.
func (g *Guard) Abandon(p Permit, now time.Duration, e AttemptEnd) (Permit, Signal) {
	if p.kind == permitSending {
		return Permit{}, g.release(p, now, e)
	}
	if p.kind != permitTaken {
		return p, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.core.eventAt
	g.core.refreshIfDue(now)
	down := g.core.abandon(p, now, e)
	p.kind = permitAbandoned
	if e.Closed {
		p = Permit{}
	}
	return p, g.core.finish(now, before) | down
}

// WantsLate reports whether a late response to the attempt of p is useful.
func (g *Guard) WantsLate(p Permit) bool { return p.Probe() }

// NextEvent returns when to call Expire, or Forever if nothing is due. It returns 0 if a
// queued request should have been admitted already, and while Guard.Probe has a probe to
// take. It changes only in calls that return a SignalEvent, a Verdict other than VerdictGo,
// or a probe.
func (g *Guard) NextEvent() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.eventAt
}

// BreakerClosed reports whether the breaker is closed. It takes no lock while the window does
// not bind.
func (g *Guard) BreakerClosed() bool {
	if g.counters.mode.Load()&modeSlow == 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.state() == Closed
}

// Expire applies what is due by now: a probe, permits whose bound has passed, the end of a
// window that no longer binds. Calling it early or late does no harm.
func (g *Guard) Expire(now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.core.eventAt
	g.core.refresh(now)
	return g.core.finish(now, before)
}

// FreeAbandoned forgets the attempts that were abandoned long before now, which otherwise waits for the next
// request while the window does not bind.
func (g *Guard) FreeAbandoned(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counters.free(now, g.core.abandonedPeriod())
}

// WantsKey reports whether AttemptEnd.Key of a good response is useful now.
func (g *Guard) WantsKey(now time.Duration) bool {
	return g.counters.mode.Load() != 0 || int64(now) >= g.core.urls.sampleAt.Load()
}

// LosingInFlight reports whether the upstream may be losing all its attempts in flight, so
// that the breaker may open. That turns out within overdueMin.
func (g *Guard) LosingInFlight(now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.options.NoBreaker && g.core.evidence.losing(now)
}

// DialRetried records that a connection for an attempt failed and is tried again. Responses
// then take the slow path, which knows when their requests were sent.
func (g *Guard) DialRetried(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.evidence.expectFailures(now)
	g.core.publish(now)
}

// EndpointLost records that connections to an endpoint that had responded began to fail, and others take
// over from it.
func (g *Guard) EndpointLost(now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.core.eventAt
	g.core.moved(now)
	return g.core.finish(now, before)
}

// Accepted records that the upstream accepted a connection, TLS handshake included.
func (g *Guard) Accepted(now time.Duration) { g.core.connections.acceptedAt.Store(int64(now)) }

// tick refreshes the state if that is due. It reports false if another goroutine holds the lock.
func (g *Guard) tick(now time.Duration) bool {
	if !g.mu.TryLock() {
		return false
	}
	defer g.mu.Unlock()
	if g.core.refreshIfDue(now) {
		g.core.publish(now)
	}
	return true
}
