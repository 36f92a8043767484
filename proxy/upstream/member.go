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

	// longestEjection is how many times DefaultEjectFor an ejection lasts at most.
	longestEjection = 10
)

// Member is one address of a group. Whoever sent a request over a connection
// of it says how that went, by Answered or Failed; both may be called on nil,
// which is the address of a group that has only one. Safe for concurrent use.
//
// After Options.EjectAfter failures in a row, dials included, no requests go to
// it for Options.EjectFor, n times as long when it is the nth time, up to ten
// times. That count falls by one for each Options.EjectFor that it then is no longer
// ejected. The first failure after its return ejects it again. An answer,
// however it came about, ends failures and ejection.
type Member struct {
	group *Group
	pool  *Pool
	addr  string
	named bool // counted by its address

	failures atomic.Int32 // in a row
	failed   atomic.Uint64
	out      atomic.Bool // ejected

	// Guarded by group.mu.
	seen     bool // by renew
	priority uint16
	weight   uint32    // in [1, 1<<24)
	until    time.Time // end of the last ejection
	times    int       // ejections, less those forgiven
}

// mostNamed bounds the addresses of a group that are counted by name.
const mostNamed = 32

// newMember is called with mu held.
func (g *Group) newMember(from *Target, addr string) *Member {
	t := *from
	t.Address, t.SRV = addr, false
	m := &Member{group: g, addr: addr, named: g.labels < mostNamed}
	if m.named {
		g.labels++
	}
	m.pool = newPool(t, g.options, m)
	return m
}

// load is how much it has in hand.
func (m *Member) load() int64 { return m.pool.load.Load() + m.pool.dialing.Load() }

func (m *Member) ejected() bool { return m.out.Load() }

// Answered says that the upstream did its work. Cheap while there was no failure.
func (m *Member) Answered() {
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
	m.back(time.Now())
	g.look()
}

// Failed says that an attempt came to nothing and that the address is to blame:
// the connection ended, no answer came in time, or a gateway's 502, 503 or 504.
func (m *Member) Failed() {
	if m == nil {
		return
	}
	m.failed.Add(1)
	m.doubt()
	if after := m.group.options.EjectAfter; after > 0 && m.failures.Add(1) >= int32(after) && !m.ejected() {
		m.group.eject(m, time.Now())
	}
}

// doubt has the name looked up anew before the next dial.
func (m *Member) doubt() {
	if m != nil {
		m.group.doubted.Store(true)
	}
}

func (g *Group) eject(m *Member, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.ejected() || g.closed || len(g.members) < 2 {
		return
	}
	base := g.options.EjectFor
	if m.times > 0 {
		m.times = max(m.times-int(now.Sub(m.until)/base), 0)
	}
	m.times = min(m.times+1, longestEjection)
	m.until = now.Add(time.Duration(m.times) * base)
	m.out.Store(true)
	m.failures.Store(int32(g.options.EjectAfter) - 1) // one more is enough, once it is back
	g.look()
	g.setReturn(now)
}

// back ends the ejection of m. Called with mu held.
func (m *Member) back(now time.Time) {
	if m.until.After(now) {
		m.until = now
	}
	m.out.Store(false)
}

// setReturn has the timer run at the end of the next ejection. Called with mu held.
func (g *Group) setReturn(now time.Time) {
	var next time.Time
	for _, m := range g.members {
		if m.ejected() && (next.IsZero() || m.until.Before(next)) {
			next = m.until
		}
	}
	if next.IsZero() || g.closed {
		return
	}
	if g.returns == nil {
		g.returns = time.AfterFunc(next.Sub(now), g.takeBack)
		return
	}
	g.returns.Reset(next.Sub(now))
}

// takeBack is the timer's.
func (g *Group) takeBack() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, m := range g.members {
		if m.ejected() && !m.until.After(now) {
			m.back(now)
		}
	}
	g.look()
	g.setReturn(now)
}
