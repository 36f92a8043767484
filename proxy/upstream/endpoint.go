package upstream

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Defaults of ejection: those of Envoy's outlier detection (consecutive_gateway_failure 5,
// base_ejection_time 30s, max_ejection_time 300s), which operators know.
const (
	// DefaultEjectAfter is the number of consecutive failures that eject an address.
	DefaultEjectAfter = 5
	// DefaultEjectFor is the duration of the first ejection; the nth lasts n times as long.
	DefaultEjectFor = 30 * time.Second

	// maxEjectionFactor limits an ejection to this many times Eject.For.
	maxEjectionFactor = 10
)

// Endpoint is one address of a group. After a request on one of its connections, the caller
// reports the result by ReportSuccess or ReportFailure. Both may be called on nil, which
// stands for a single fixed address. It is safe for concurrent use.
//
// After Eject.After consecutive failures, dials included, it gets no requests for
// Eject.For, n times as long for the nth ejection, up to ten times. The count falls
// by one for each Eject.For without ejection. The first failure after an ejection
// ejects it again. Any success ends failures and ejection. So does an accepted connection, if it was
// ejected because connections failed.
type Endpoint struct {
	group    *Group
	pool     *Pool
	addr     string
	hash     uint64 // of addr
	labelled bool   // counted under its address

	failures   atomic.Int32 // consecutive
	lost       atomic.Bool  // the last one was that of a connection
	failed     atomic.Uint64
	doubtSince atomic.Int64 // pool time of the first doubtful failure since the last success; 0: none
	ejectedNow atomic.Bool  // whether it is ejected
	unhealthy  atomic.Bool  // whether its health checks fail

	// Guarded by group.mu.
	seen         bool // scratch of updateEndpoints
	priority     uint16
	weight       uint32    // in [1, 1<<24)
	ejectedUntil time.Time // end of the last ejection
	ejections    int       // number of ejections, less those expired

	checksAgainst int // consecutive health checks that contradict its current health
}

// maxLabelled limits the addresses of a group that are counted by name.
const maxLabelled = 32

// newEndpoint requires mu.
func (g *Group) newEndpoint(from *Target, addr string) *Endpoint {
	t := *from
	t.Address, t.SRV = addr, false
	m := &Endpoint{group: g, addr: addr, hash: KeyOf([]byte(addr)), labelled: g.labelledCount < maxLabelled}
	if m.labelled {
		g.labelledCount++
	}
	m.pool = newPool(t, g.options, m)
	return m
}

// Host returns the value of a Host header for the endpoint; "" for nil.
func (e *Endpoint) Host() string {
	if e == nil {
		return ""
	}
	return e.pool.target.Host
}

// isOf reports whether the endpoint connects as t does. If an address has moved from one name of a
// list to another, the names in Host and SNI are others too.
func (e *Endpoint) isOf(t *Target) bool {
	return e.pool.target.Host == t.Host && e.pool.target.TLS == t.TLS
}

// load returns the number of connections in use, dials included.
func (e *Endpoint) load() int64 { return e.pool.load.Load() + e.pool.dialing.Load() }

func (e *Endpoint) ejected() bool { return e.ejectedNow.Load() }

// isUnavailable reports whether e is ejected or unhealthy, so that requests prefer other endpoints.
func (e *Endpoint) isUnavailable() bool { return e.ejectedNow.Load() || e.unhealthy.Load() }

// ReportSuccess records that the upstream did its work. It is cheap while there was no
// failure.
func (e *Endpoint) ReportSuccess() {
	if e == nil {
		return
	}
	if e.failures.Load() != 0 {
		e.failures.Store(0)
	}
	if e.doubtSince.Load() != 0 {
		e.doubtSince.Store(0)
	}
	if !e.ejected() {
		return
	}
	g := e.group
	g.mu.Lock()
	defer g.mu.Unlock()
	e.uneject(time.Now())
	g.updatePicker()
}

// ReportFailure records an attempt that failed because of the address: no response came in time, or
// a gateway sent 502, 503 or 504.
func (e *Endpoint) ReportFailure() { e.report(false) }

// ReportLost records an attempt that failed because no connection was made, or it ended without a
// response. If that ejects the endpoint, the next accepted connection brings it back; see reconnect.
func (e *Endpoint) ReportLost() { e.report(true) }

func (e *Endpoint) report(lost bool) {
	if e == nil {
		return
	}
	e.lost.Store(lost)
	e.failed.Add(1)
	e.requestLookup()
	o, inRow := &e.group.options, e.failures.Add(1)
	if lost && inRow == 1 && o.OnLost != nil {
		o.OnLost()
	}
	if o.Eject.After > 0 && inRow >= int32(o.Eject.After) && !e.ejected() {
		e.group.eject(e, time.Now())
	}
}

// doubtTime is how long only doubtful failures must have come for them to count: as long as a dial
// may take by default.
const doubtTime = DefaultDialTimeout

// ReportDoubtful records a failure that a client may have caused by itself. It counts if nothing
// has succeeded here for doubtTime.
func (e *Endpoint) ReportDoubtful() {
	if e == nil {
		return
	}
	now := int64(e.pool.now())
	if !e.doubtSince.CompareAndSwap(0, now) && now-e.doubtSince.Load() >= int64(doubtTime) {
		e.ReportFailure()
	}
}

// requestLookup makes the next dial look the name up again.
func (e *Endpoint) requestLookup() {
	if e != nil {
		e.group.lookupRequested.Store(true)
	}
}

func (g *Group) eject(m *Endpoint, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.ejected() || g.closed || len(g.endpoints) < 2 {
		return
	}
	base := g.options.Eject.For
	if m.ejections > 0 {
		m.ejections = max(m.ejections-int(now.Sub(m.ejectedUntil)/base), 0)
	}
	m.ejections = min(m.ejections+1, maxEjectionFactor)
	m.ejectedUntil = now.Add(time.Duration(m.ejections) * base)
	m.ejectedNow.Store(true)
	m.failures.Store(int32(g.options.Eject.After) - 1) // after its return, one more failure is enough
	g.updatePicker()
	g.scheduleUneject(now)
	if m.lost.Load() {
		pause := time.Duration(m.ejections) * reconnectEvery
		g.checks.Go(func() { m.reconnect(pause) })
	}
}

// reconnectEvery is the time between two connections to an ejected endpoint, n times as long in the
// nth ejection. A connection costs little, and a restart takes seconds.
const reconnectEvery = time.Second

// reconnect ends the ejection of e when it accepts a connection: what ejected it is what brings it back.
// After that, one failure is enough to eject it again.
func (e *Endpoint) reconnect(pause time.Duration) {
	for e.ejected() {
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-e.group.background.Done():
			return
		}
		ctx, cancel := context.WithTimeout(e.group.background, DefaultDialTimeout)
		c, err := e.dialCheck(ctx)
		cancel()
		if err != nil {
			continue
		}
		_ = c.Close()
		e.group.mu.Lock()
		e.uneject(time.Now())
		e.group.updatePicker()
		e.group.mu.Unlock()
	}
}

// uneject ends the ejection of m. It requires mu.
func (e *Endpoint) uneject(now time.Time) {
	if e.ejectedUntil.After(now) {
		e.ejectedUntil = now
	}
	e.ejectedNow.Store(false)
}

// scheduleUneject sets the timer to the end of the next ejection. It requires mu.
func (g *Group) scheduleUneject(now time.Time) {
	var next time.Time
	for _, m := range g.endpoints {
		if m.ejected() && (next.IsZero() || m.ejectedUntil.Before(next)) {
			next = m.ejectedUntil
		}
	}
	if next.IsZero() || g.closed {
		return
	}
	if g.unejectTimer == nil {
		g.unejectTimer = time.AfterFunc(next.Sub(now), g.unejectExpired)
		return
	}
	g.unejectTimer.Reset(next.Sub(now))
}

// unejectExpired ends expired ejections. The timer calls it.
func (g *Group) unejectExpired() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, m := range g.endpoints {
		if m.ejected() && !m.ejectedUntil.After(now) {
			m.uneject(now)
		}
	}
	g.updatePicker()
	g.scheduleUneject(now)
}
