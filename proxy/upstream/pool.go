package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultIdleConns bounds the idle connections of a pool: above what a
	// sidecar's clients leave idle between bursts, and half of the common
	// limit of 1024 descriptors.
	DefaultIdleConns = 512

	// sweepPeriod is the time between two looks at the connections that
	// stay idle, for those that became so in the last eight seconds.
	sweepPeriod = time.Second

	// sweepStep is how many connections are looked at while the lock is
	// held, at well under a microsecond each.
	sweepStep = 16
)

// Options bound a pool or a group, each pool of it. The zero value of a field means its default.
type Options struct {
	IdleConns int           // most idle connections kept; default DefaultIdleConns
	IdleAge   time.Duration // longest idle time; default DefaultIdleAge; an upstream's Keep-Alive field and experience lower it

	// Start is when the clock began that the holders of connections share, by which they say
	// what time it is; default: when the pool was made.
	Start time.Time

	// OnDialError is told of each failed connection to an address, or lookup of a name,
	// of a Group, even if the dial as a whole then succeeds; nil: nobody is. It is
	// called by many goroutines at once, on the way of a request.
	OnDialError func(*DialError)

	EjectAfter int           // failures in a row that eject an address of a Group; default DefaultEjectAfter; below 0: none does
	EjectFor   time.Duration // how long for; default DefaultEjectFor
}

// GetOptions say what a request needs from its connection. The zero value
// takes any.
type GetOptions struct {
	// Fresh asks for a connection dialled now: after an idle close all
	// pooled ones may be stale.
	Fresh bool
	// MaxIdle takes no pooled connection that was idle for longer; 0 means any.
	MaxIdle time.Duration
	// Unchecked asks for the connection as it is: the request will be sent by
	// SendChecked, which looks itself. It has no effect on a connection that
	// cannot do that.
	Unchecked bool
	// ForceLookup asks for the name to be resolved anew before a dial, whatever is
	// known: the upstream may have moved.
	ForceLookup bool
	// Now is the time, where the client looked at the clock of Options.Start a moment ago; 0: it did not.
	Now time.Duration
	// Avoid is the address that the last attempt failed on (Conn.Addr or
	// DialError.Addr). Another one is preferred, pooled or dialled, if the
	// upstream has several; "" avoids none.
	Avoid string
	// Endpoint is whom Group.Choose chose; nil: whoever's turn it is.
	Endpoint *Endpoint
	// HTTP1 asks for a connection of its own that speaks HTTP/1.1, where the
	// upstream speaks either: only there can a request ask for an upgrade.
	HTTP1 bool
}

// Stats is a picture of a pool. The counters never go down.
type Stats struct {
	Idle    int // connections kept for the next request
	Active  int // connections handed out, or with HTTP/2 streams on them
	Streams int // HTTP/2 streams handed out
	Dialing int // dials in progress

	Dials       uint64               // connections made
	DialErrors  [NumDialKinds]uint64 // failed dials, by DialKind
	Reuses      uint64               // times a pooled connection was handed out
	IdleCloses  uint64               // connections the upstream closed while idle, CloseStale included
	Unsolicited uint64               // idle connections on which the upstream said something unasked

	IdleLimit  time.Duration // the longest idle time now allowed, as learned
	PeerExpiry time.Time     // end of validity of the certificate last shown by the upstream; zero without TLS
}

// Pool keeps idle connections to one address and dials new ones. Safe for
// concurrent use. The last one released is the first handed out, so that the
// surplus of a burst grows old and goes.
//
// One lock guards it all. TryPooled and Release together take about 120 ns on
// one core, and 130 ns each when two cores do nothing else (BenchmarkPooled
// -cpu 1,2), next to some 13 us for a proxied request: sharding would gain less
// than it costs in reuse.
type Pool struct {
	target    Target
	idleConns int
	start     time.Time  // Options.Start: pool time is measured from here, monotonic
	http2     *http2Pool // nil unless HTTP/2 may be spoken

	dialing    atomic.Int64
	dials      atomic.Uint64
	dialErrors [NumDialKinds]atomic.Uint64
	peerExpiry atomic.Int64 // Unix seconds; 0 = none seen
	endpoint   *Endpoint    // of a group of several; nil: the pool stands alone
	load       atomic.Int64 // active, to be read without mu; kept for endpoints only

	mu          sync.Mutex // guards all below; held for nanoseconds, never over I/O
	idle        []*Conn    // in the order of release, the next to hand out last
	active      int
	closed      bool
	sweeping    bool          // the timer is set, or a sweep runs
	sweepAfter  time.Duration // what it was set to
	sweptAt     time.Duration // pool time of the last sweep
	timer       *time.Timer
	latest      time.Duration // pool time, as known
	idleTimeout idleTimeoutLearner
	reuses      uint64
	idleCloses  uint64
	unsolicited uint64
}

// withDefaults fills in what was left zero.
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
	if o.EjectAfter == 0 {
		o.EjectAfter = DefaultEjectAfter
	}
	if o.EjectFor <= 0 {
		o.EjectFor = DefaultEjectFor
	}
	return o
}

// NewPool makes an empty pool. It dials nothing and starts nothing. The
// target's Address is dialled as it is: names are a Group's.
func NewPool(t Target, o Options) *Pool { return newPool(t, o, nil) }

func newPool(t Target, o Options, m *Endpoint) *Pool {
	o = o.withDefaults()
	p := &Pool{target: t, idleConns: o.IdleConns, start: o.Start, idleTimeout: idleTimeoutLearner{max: o.IdleAge}, endpoint: m}
	if t.Protocol != HTTP1 {
		p.http2 = newHTTP2Pool(p)
	}
	return p
}

// Target gives what the pool connects to.
func (p *Pool) Target() Target { return p.target }

// Get gives a pooled connection (see TryPooled) or dials. Only the dial uses
// ctx; it ends at the target's DialTimeout or with ctx, whichever is first.
// The error is always a *DialError.
func (p *Pool) Get(ctx context.Context, o GetOptions) (*Conn, error) {
	if c := p.TryPooled(&o); c != nil {
		return c, nil
	}
	if p.usesStreams(&o) {
		return p.http2.get(ctx, o)
	}
	return p.dial(ctx, o.HTTP1)
}

// TryPooled gives the pooled connection released last that suits o and is
// still open and quiet, or nil. It does not block, does not allocate and does not keep o.
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
			_ = c.Close()
		case o.Unchecked && c.CanSendChecked(), p.usable(c):
			c.Reused = true
			c.Uses++
			return c
		}
	}
}

// usesStreams says whether a request may be a stream among others on a connection.
func (p *Pool) usesStreams(o *GetOptions) bool {
	return p.http2 != nil && !(o.HTTP1 && p.target.Protocol == Negotiated)
}

// take removes the next suitable connection and counts it as active. expired
// ones are given back to be closed.
func (p *Pool) take(o *GetOptions) (c *Conn, expired bool) {
	p.mu.Lock()
	if len(p.idle) > 0 {
		c, expired = p.takeOne(o)
	}
	p.mu.Unlock() // not deferred: that shows, at one for each request
	return c, expired
}

// takeOne is take where some are idle. Called with mu held.
func (p *Pool) takeOne(o *GetOptions) (c *Conn, expired bool) {
	now := p.poolTime(o.Now)
	i := len(p.idle) - 1
	c = p.idle[i]
	idle := now - c.releasedAt
	if o.MaxIdle > 0 && idle > o.MaxIdle {
		return nil, false // those below are older still
	}
	p.idle[i] = nil
	p.idle = p.idle[:i]
	p.addActive(1)
	c.state = connInUse
	c.idleFor = idle
	if idle > p.idleLimit(c, now) {
		return c, true
	}
	p.reuses++
	return c, false
}

// addActive counts connections as handed out. Called with mu held.
func (p *Pool) addActive(n int) {
	p.active += n
	if p.endpoint != nil {
		p.load.Store(int64(p.active))
	}
}

// idleLimit is the idle age allowed for c.
func (p *Pool) idleLimit(c *Conn, now time.Duration) time.Duration {
	l := p.idleTimeout.limit(now)
	if c.keepAlive > 0 {
		l = min(l, c.keepAlive)
	}
	return l
}

// usable looks at c, just taken, and closes it when it is of no use.
func (p *Pool) usable(c *Conn) bool {
	f := c.checkIdle()
	if f == idleOpen {
		return true
	}
	p.mu.Lock()
	p.recordIdleState(f, c.idleFor)
	p.addActive(-1)
	p.reuses--
	c.state = connClosed
	p.mu.Unlock()
	c.shut(false)
	return false
}

// recordIdleState counts what a look at an idle connection brought. Called with mu held.
func (p *Pool) recordIdleState(f idleState, age time.Duration) {
	if f == idleUnsolicited {
		p.unsolicited++
		return
	}
	p.idleCloses++
	p.endpoint.requestLookup()
	p.idleTimeout.observe(p.now(), age)
}

func (p *Pool) idleClosed(age time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recordIdleState(idleClosed, age)
}

// put takes c back. false: it is not kept and the client has to shut it. True
// also when c was not held, and nothing is to be done.
func (p *Pool) put(c *Conn, now time.Duration) bool {
	p.mu.Lock()
	kept := c.state != connInUse || p.keep(c, p.poolTime(now))
	p.mu.Unlock() // as in take
	return kept
}

// keep is put for what was held. Called with mu held.
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

// drop ends the holding of c; false when it was not held.
func (p *Pool) drop(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.state != connInUse {
		return false
	}
	c.state = connClosed
	p.addActive(-1)
	if c.stream {
		p.http2.active.Add(-1)
	}
	return true
}

// now is pool time: monotonic, since the start.
func (p *Pool) now() time.Duration { return time.Since(p.start) }

// poolTime is pool time for who says that it is now; 0: it does not say. Between the look at the clock
// and this call others may have told a later time. Called with mu held.
func (p *Pool) poolTime(now time.Duration) time.Duration {
	if now == 0 {
		now = p.now()
	}
	p.latest = max(p.latest, now)
	return p.latest
}

// Stats gives a picture of the pool.
func (p *Pool) Stats() Stats {
	now := p.now()
	p.mu.Lock()
	s := Stats{
		Idle: len(p.idle), Active: p.active,
		Reuses: p.reuses, IdleCloses: p.idleCloses, Unsolicited: p.unsolicited,
		IdleLimit: p.idleTimeout.limit(now),
	}
	p.mu.Unlock()
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

// Close closes the idle connections and keeps none from now on: what is
// released later is closed. Connections that are handed out go on, and Get
// still dials, so that requests begun before a reload can finish on the old
// pool. Closing twice does nothing.
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
	for _, c := range idle {
		_ = c.Conn.Close()
	}
	if p.http2 != nil {
		p.http2.close()
	}
}
