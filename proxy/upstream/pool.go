package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http2"
)

const (
	// DefaultIdleConns limits the idle connections of a pool. It is more than a sidecar's
	// clients leave idle between bursts, and half of the common limit of 1024 descriptors.
	DefaultIdleConns = 512

	// sweepPeriod is the shortest time between two checks of idle connections.
	sweepPeriod = time.Second

	// sweepStep is how many connections are checked under the lock, at well under a
	// microsecond each.
	sweepStep = 16
)

// Options limits a pool, or each pool of a group. A zero field means its default.
type Options struct {
	IdleConns int           // maximum number of idle connections; default DefaultIdleConns
	IdleAge   time.Duration // maximum idle time; default DefaultIdleAge; an upstream's Keep-Alive header lowers it

	// Start is the origin of the clock that owners of connections share; default: when the
	// pool was made.
	Start time.Time

	// OnDialError is called for each failed connection to an address, or lookup of a name,
	// of a Group, even if the dial as a whole then succeeds; nil: none. It is called
	// concurrently, on the request path.
	OnDialError func(*DialError)

	// OnLost is called when connections to an address of a Group that works begin to fail, or to end
	// without a response; nil: none. It is called concurrently, on the request path.
	OnLost func()

	Eject Eject // when addresses of a Group are ejected

	// HealthCheck checks the addresses of a Group. OnHealth is called when one becomes unhealthy, with
	// the error of its last check, or healthy again, with nil. It may be nil.
	HealthCheck HealthCheck
	OnHealth    func(addr string, err error)

	// ReadAhead is what an upstream may send of a response by HTTP/2 for a client that reads slowly.
	// The default of its window is DefaultStreamWindow.
	ReadAhead http2.ReadAhead
}

// Eject is when an address of a Group is ejected for a while.
type Eject struct {
	After int           // consecutive failures; default DefaultEjectAfter; below 0: never
	For   time.Duration // duration of the first ejection; default DefaultEjectFor
}

// GetOptions is what a request needs from its connection. The zero value accepts any.
type GetOptions struct {
	// Fresh asks for a newly dialed connection: after an idle close all pooled ones may be
	// stale.
	Fresh bool
	// MaxIdle excludes pooled connections that were idle for longer; 0 means any.
	MaxIdle time.Duration
	// Unchecked skips the check of a pooled connection, because SendChecked will check it.
	// It has no effect on a connection that does not support SendChecked.
	Unchecked bool
	// ForceLookup resolves the name again before a dial, even if the last response is still
	// valid: the upstream may have moved.
	ForceLookup bool
	// Now is the current time by the clock of Options.Start; 0 means read the clock.
	Now time.Duration
	// Avoid is the address on which the last attempt failed (Conn.Addr or DialError.Addr).
	// If the upstream has several addresses, another one is preferred, pooled or dialed; ""
	// avoids none.
	Avoid string
	// Key is that of Choice, for an upstream whose addresses are not known yet.
	Key uint64
	// Endpoint is the result of Group.Choose; nil: choose now.
	Endpoint *Endpoint
	// HTTP1 asks for a separate HTTP/1.1 connection if the upstream supports both
	// protocols: only such a connection can be upgraded.
	HTTP1 bool
	// DialTimeout limits resolving, connecting over all addresses and the TLS handshake
	// together; 0 means DefaultDialTimeout.
	DialTimeout time.Duration
	// BoundUnsent keeps the upstream's system from buffering much of a response that is not read. It applies
	// to a dialed HTTP/1.1 connection, unless ALPN chose that; the streams of an HTTP/2 connection have windows.
	BoundUnsent bool

	dontQueue  bool        // fail at once if no stream is free; another endpoint may have one
	first      *streamWait // it is the first of those that wait for a stream; nil: it is not
	waitsSince time.Time   // for a stream; zero: it has not waited yet
	looksAgain bool        // its Group looks for a stream again if this wait for one was in vain
}

func (o *GetOptions) dialTimeout() time.Duration {
	if o.DialTimeout <= 0 {
		return DefaultDialTimeout
	}
	return o.DialTimeout
}

// Stats is a snapshot of a pool. The counters never decrease.
type Stats struct {
	Idle    int // connections kept for the next request
	Active  int // connections in use, or with HTTP/2 streams
	Streams int // HTTP/2 streams in use
	Dialing int // dials in progress

	Dials       uint64               // connections made
	DialErrors  [NumDialKinds]uint64 // failed dials, by DialKind
	Reuses      uint64               // times a pooled connection was taken
	IdleCloses  uint64               // connections the upstream closed while idle, CloseStale included
	Unsolicited uint64               // idle connections on which the upstream sent something without a request

	PeerExpiry time.Time // expiry of the certificate last sent by the upstream; zero without TLS
}

// Pool keeps idle connections to one address and dials new ones. It is safe for concurrent
// use. The connection released last is taken first, so that the surplus of a burst ages and
// is closed.
//
// One lock guards it all. TryPooled and Release together take about 120 ns on one core, and
// 130 ns each if two cores do nothing else (BenchmarkPooled -cpu 1,2), compared with some
// 13 us for a proxied request. Sharding would gain less than it costs in reuse.
type Pool struct {
	target    Target
	idleConns int
	idleAge   time.Duration
	start     time.Time  // Options.Start: the origin of pool time, monotonic
	http2     *http2Pool // nil unless HTTP/2 may be spoken

	dialing    atomic.Int64
	dials      atomic.Uint64
	reuses     atomic.Uint64
	dialErrors [NumDialKinds]atomic.Uint64
	peerExpiry atomic.Int64 // Unix seconds; 0 = none seen
	endpoint   *Endpoint    // of a group with several; nil: the pool stands alone
	load       atomic.Int64 // copy of active, read without mu; only for endpoints

	mu          sync.Mutex // guards the fields below; held for nanoseconds, never during I/O
	idle        []*Conn    // in the order of release, the next to take last
	active      int
	closed      bool
	sweeping    bool          // the timer is set, or a sweep is running
	sweepAfter  time.Duration // the duration that timer was set to
	timer       *time.Timer
	latest      time.Duration // the latest pool time seen
	idleCloses  uint64
	unsolicited uint64
}

// withDefaults replaces zero fields with the defaults.
func (o Options) withDefaults() Options {
	if o.IdleConns <= 0 {
		o.IdleConns = DefaultIdleConns
	}
	if o.IdleAge <= 0 {
		o.IdleAge = DefaultIdleAge
	}
	if o.Start.IsZero() {
		o.Start = time.Now()
	}
	if o.Eject.After == 0 {
		o.Eject.After = DefaultEjectAfter
	}
	if o.ReadAhead.Window <= 0 {
		o.ReadAhead.Window = DefaultStreamWindow
	}
	if o.HealthCheck.Interval <= 0 {
		o.HealthCheck.Interval = DefaultHealthInterval
	}
	if o.Eject.For <= 0 {
		o.Eject.For = DefaultEjectFor
	}
	return o
}

// NewPool returns an empty pool. It does not dial or start anything. It dials the target's
// Address as it is: a Group resolves names.
func NewPool(t Target, o Options) *Pool { return newPool(t, o, nil) }

func newPool(t Target, o Options, m *Endpoint) *Pool {
	o = o.withDefaults()
	p := &Pool{target: t, idleConns: o.IdleConns, idleAge: o.IdleAge, start: o.Start, endpoint: m}
	if t.Protocol != HTTP1 {
		p.http2 = newHTTP2Pool(p, o.ReadAhead)
	}
	return p
}

// Target returns the target of the pool. The caller must not change what it points to.
func (p *Pool) Target() Target { return p.target }

// Get returns a pooled connection (see TryPooled) or dials. Only the dial uses ctx. It ends
// at GetOptions.DialTimeout or with ctx, whichever is first. The error is always a
// *DialError.
func (p *Pool) Get(ctx context.Context, o GetOptions) (*Conn, error) {
	if c := p.TryPooled(&o); c != nil {
		return c, nil
	}
	if p.usesStreams(&o) {
		return p.http2.get(ctx, o)
	}
	return p.dial(ctx, o.dialTimeout(), &o)
}

// TryPooled returns the pooled connection released last that satisfies o and is still open
// and idle, or nil. It does not block, does not allocate and does not keep o.
func (p *Pool) TryPooled(o *GetOptions) *Conn {
	if p.usesStreams(o) {
		if c := p.http2.openStream(o); c != nil {
			return c
		}
	}
	if o.Fresh {
		return nil
	}
	for {
		c, expired := p.take(o)
		switch {
		case c == nil:
			return nil
		case expired:
			if p.endUse(c) {
				c.closeSocket(false) // no close_notify, which could block
			}
		case o.Unchecked && c.CanSendChecked(), p.usable(c):
			p.reuses.Add(1) // only now is it certain
			c.Reused = true
			c.Uses++
			return c
		}
	}
}

// usesStreams reports whether the request may be a stream of a shared connection.
func (p *Pool) usesStreams(o *GetOptions) bool {
	return p.http2 != nil && !(o.HTTP1 && p.target.Protocol == Negotiated)
}

// take removes the next suitable connection and counts it as active. If expired is true,
// the caller must close it.
func (p *Pool) take(o *GetOptions) (c *Conn, expired bool) {
	p.mu.Lock()
	if len(p.idle) > 0 {
		c, expired = p.takeOne(o)
	}
	p.mu.Unlock() // not deferred: the cost is measurable, at one per request
	return c, expired
}

// takeOne is take with at least one idle connection. It requires mu.
func (p *Pool) takeOne(o *GetOptions) (c *Conn, expired bool) {
	now := p.poolTime(o.Now)
	i := len(p.idle) - 1
	c = p.idle[i]
	idle := now - c.releasedAt
	if o.MaxIdle > 0 && idle > o.MaxIdle {
		return nil, false // the ones below are older still
	}
	p.idle[i] = nil
	p.idle = p.idle[:i]
	p.addActive(1)
	c.state = connInUse
	if idle > p.idleLimit(c) {
		return c, true
	}
	return c, false
}

// addActive adds n to the connections in use. It requires mu.
func (p *Pool) addActive(n int) {
	p.active += n
	if p.endpoint != nil {
		p.load.Store(int64(p.active))
	}
}

// idleLimit returns the idle age allowed for c.
func (p *Pool) idleLimit(c *Conn) time.Duration {
	if c.keepAlive > 0 {
		return min(p.idleAge, c.keepAlive)
	}
	return p.idleAge
}

// usable checks c, just taken, and closes it if it cannot be used.
func (p *Pool) usable(c *Conn) bool {
	f := c.checkIdle()
	if f == idleOpen {
		return true
	}
	p.mu.Lock()
	p.recordIdleState(f)
	p.addActive(-1)
	c.state = connClosed
	p.mu.Unlock()
	c.closeSocket(false)
	return false
}

// recordIdleState counts the result of a check of an idle connection. It requires mu.
func (p *Pool) recordIdleState(f idleState) {
	if f == idleUnsolicited {
		p.unsolicited++
		return
	}
	p.idleCloses++
	p.endpoint.requestLookup()
}

// put takes c back. It returns false if c is not kept and the caller must shut it. It
// returns true and does nothing if c is not in use.
func (p *Pool) put(c *Conn, now time.Duration) bool {
	p.mu.Lock()
	kept := c.state != connInUse || p.keep(c, p.poolTime(now))
	p.mu.Unlock() // as in take
	return kept
}

// keep is put for a connection in use. It requires mu.
func (p *Pool) keep(c *Conn, now time.Duration) bool {
	p.addActive(-1)
	if p.closed || len(p.idle) >= p.idleConns {
		c.state = connClosed
		return false
	}
	c.state = connIdle
	c.releasedAt = now
	p.idle = append(p.idle, c)
	p.sweepSoon()
	return true
}

// endUse ends the use of c, and reports whether it was in use.
func (p *Pool) endUse(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.state != connInUse {
		return false
	}
	c.state = connClosed
	p.addActive(-1)
	if c.stream != nil {
		p.http2.active.Add(-1)
	}
	return true
}

// now returns pool time: monotonic, since start.
func (p *Pool) now() time.Duration { return time.Since(p.start) }

// at converts pool time to a time.Time, for deadlines. 0 becomes the zero time.
func (p *Pool) at(t time.Duration) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return p.start.Add(t)
}

// poolTime converts a caller-supplied time to pool time; 0 means read the clock. It never
// goes back, since another caller may have supplied a later time. It requires mu.
func (p *Pool) poolTime(now time.Duration) time.Duration {
	if now == 0 {
		now = p.now()
	}
	p.latest = max(p.latest, now)
	return p.latest
}

// Stats returns a snapshot of the pool.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	s := Stats{
		Idle: len(p.idle), Active: p.active,
		IdleCloses: p.idleCloses, Unsolicited: p.unsolicited,
	}
	p.mu.Unlock()
	s.Reuses = p.reuses.Load()
	if p.http2 != nil {
		p.http2.addStats(&s)
	}
	s.Dialing = int(p.dialing.Load())
	s.Dials = p.dials.Load()
	for k := range s.DialErrors {
		s.DialErrors[k] = p.dialErrors[k].Load()
	}
	if at := p.peerExpiry.Load(); at != 0 {
		s.PeerExpiry = time.Unix(at, 0)
	}
	return s
}

// Close closes the idle connections and keeps none from then on: a connection released
// later is closed. Connections in use continue, and Get still dials, so that requests begun
// before a reload can finish on the old pool. Closing twice does nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, c := range idle {
		c.state = connClosed
	}
	p.mu.Unlock()
	closeIdle(idle)
	if p.http2 != nil {
		p.http2.close()
	}
}
