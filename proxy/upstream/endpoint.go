package upstream

import (
	"sync/atomic"
	"time"
)

// Ejection: the defaults are those of Envoy's outlier detection
// (consecutive_gateway_failure 5, base_ejection_time 30s, max_ejection_time
// 300s), which are what operators know.
const (
	// DefaultEjectAfter is how many failures in a row eject an address.
	DefaultEjectAfter = 5
	// DefaultEjectFor is how long the first ejection lasts; the nth lasts n times as long.
	DefaultEjectFor = 30 * time.Second

	// maxEjectionFactor is how many times DefaultEjectFor an ejection lasts at most.
	maxEjectionFactor = 10
)

// Endpoint is one address of a group. Whoever sent a request over a connection
// of it says how that went, by Answered or Failed; both may be called on nil,
// which is the address of a group that has only one. Safe for concurrent use.
//
// After Options.EjectAfter failures in a row, dials included, no requests go to
// it for Options.EjectFor, n times as long when it is the nth time, up to ten
// times. That count falls by one for each Options.EjectFor that it then is no longer
// ejected. The first failure after its return ejects it again. A response,
// however it came about, ends failures and ejection.
type Endpoint struct {
	group    *Group
	pool     *Pool
	addr     string
	labelled bool // counted by its address

	failures   atomic.Int32 // in a row
	failed     atomic.Uint64
	ejectedNow atomic.Bool // ejected

	// Guarded by group.mu.
	seen         bool // by renew
	priority     uint16
	weight       uint32    // in [1, 1<<24)
	ejectedUntil time.Time // end of the last ejection
	ejections    int       // ejections, less those forgiven
}

// maxLabelled bounds the addresses of a group that are counted by name.
const maxLabelled = 32

// newEndpoint is called with mu held.
func (g *Group) newEndpoint(from *Target, addr string) *Endpoint {
	t := *from
	t.Address, t.SRV = addr, false
	m := &Endpoint{group: g, addr: addr, labelled: g.labelledCount < maxLabelled}
	if m.labelled {
		g.labelledCount++
	}
	m.pool = newPool(t, g.options, m)
	return m
}

// load is how much it has in flight.
func (m *Endpoint) load() int64 { return m.pool.load.Load() + m.pool.dialing.Load() }

func (m *Endpoint) ejected() bool { return m.ejectedNow.Load() }

// ReportSuccess says that the upstream did its work. Cheap while there was no failure.
func (m *Endpoint) ReportSuccess() {
	if m == nil {
		return
	}
	if m.failures.Load() != 0 {
		m.failures.Store(0)
	}
	if !m.ejected() {
		return
	}
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	m.uneject(time.Now())
	g.updatePicker()
}

// ReportFailure says that an attempt came to nothing and that the address is to blame:
// the connection ended, no response came in time, or a gateway's 502, 503 or 504.
func (m *Endpoint) ReportFailure() {
	if m == nil {
		return
	}
	m.failed.Add(1)
	m.requestLookup()
	if after := m.group.options.EjectAfter; after > 0 && m.failures.Add(1) >= int32(after) && !m.ejected() {
		m.group.eject(m, time.Now())
	}
}

// requestLookup has the name looked up anew before the next dial.
func (m *Endpoint) requestLookup() {
	if m != nil {
		m.group.lookupRequested.Store(true)
	}
}

func (g *Group) eject(m *Endpoint, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.ejected() || g.closed || len(g.endpoints) < 2 {
		return
	}
	base := g.options.EjectFor
	if m.ejections > 0 {
		m.ejections = max(m.ejections-int(now.Sub(m.ejectedUntil)/base), 0)
	}
	m.ejections = min(m.ejections+1, maxEjectionFactor)
	m.ejectedUntil = now.Add(time.Duration(m.ejections) * base)
	m.ejectedNow.Store(true)
	m.failures.Store(int32(g.options.EjectAfter) - 1) // one more is enough, once it is back
	g.updatePicker()
	g.scheduleUneject(now)
}

// uneject ends the ejection of m. Called with mu held.
func (m *Endpoint) uneject(now time.Time) {
	if m.ejectedUntil.After(now) {
		m.ejectedUntil = now
	}
	m.ejectedNow.Store(false)
}

// scheduleUneject has the timer run at the end of the next ejection. Called with mu held.
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

// unejectExpired is the timer's.
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
