package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http2"
)

// Protocol is the HTTP version used with an upstream.
type Protocol uint8

// The protocols.
const (
	HTTP1      Protocol = iota // HTTP/1.1
	HTTP2                      // HTTP/2: without TLS by prior knowledge, with TLS by ALPN
	Negotiated                 // what ALPN chooses; with TLS only
)

// DefaultStreamWindow is HTTP/2's window of one response, in bytes: how much of it is buffered for a
// slow client.
const DefaultStreamWindow = 512 << 10

// maxHTTP2HeaderBytes limits response headers before the configured limit applies.
const maxHTTP2HeaderBytes = 1 << 20

const (
	pingInterval = 15 * time.Second // of silence while requests are open; without a reply within the same time, the connection ends
	headerTime   = 10 * time.Second // for the rest of headers that have begun
	writeTime    = time.Minute      // for an upstream that reads nothing
)

// A response is complete with its last byte, but an upstream may end its stream later
// (END_STREAM). endGrace is how long that may take before the stream is reset. maxEnding is
// how many streams of one pool may be in that state; beyond it, streams are reset at once.
// Neither the client's response nor a permit waits for it.
const (
	endGrace  = 5 * time.Second
	maxEnding = 256
)

// freshFor is the maximum age of a connection that counts as just dialed if a fresh one is
// requested. So all requests that lost one connection share the next.
const freshFor = time.Second

// http2Pool is a pool's HTTP/2 connections. Each carries many concurrent requests, so a
// Conn is one stream, never a whole connection.
type http2Pool struct {
	pool  *Pool
	ahead http2.ReadAhead // of each response

	mostConns int // that take requests

	// conns is read without mu and replaced under it.
	conns  atomic.Pointer[[]*http2Conn]
	active atomic.Int64  // Conns that are streams
	reuses atomic.Uint64 // streams on a connection that had an earlier one
	ending atomic.Int64  // streams with a complete response that the upstream has not ended yet
	ended  func()        // one of them has ended

	queued    atomic.Int64 // length of queue
	usesLimit atomic.Int64 // requests that a connection takes before the upstream ends it; 0: not known

	mu      sync.Mutex    // guards the fields below
	seen    bool          // the upstream has spoken HTTP/2
	streams int           // at once that the last connection allowed
	dialing []*sharedDial // the dials that other requests wait for
	queue   []*streamWait // for a free stream, in order
	closed  bool
}

// sharedDial is a dial that several requests wait for, and then for the SETTINGS of the upstream.
type sharedDial struct {
	waiting int // requests that wait; guarded by http2Pool.mu
	done    chan struct{}
	time    time.Duration // how long the dial may take; set when done
	err     *DialError    // set when done; nil: try openStream again
}

func newHTTP2Pool(p *Pool, ahead http2.ReadAhead) *http2Pool {
	s := &http2Pool{pool: p, ahead: ahead, mostConns: mostHTTP2Conns, streams: http2.UnsaidStreams}
	s.conns.Store(new([]*http2Conn))
	s.ended = func() { s.ending.Add(-1) }
	return s
}

// noteStreams records how many streams a connection allows.
func (p *http2Pool) noteStreams(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 {
		p.streams = n
	}
}

// requestLookup asks for a lookup of the upstream's name, since its endpoints may have changed.
func (p *http2Pool) requestLookup() { p.pool.endpoint.requestLookup() }

// openStream returns a stream on a connection with capacity, or nil. A connection on which the
// upstream does not read a request's body has none: its window may be used up.
func (p *http2Pool) openStream(o *GetOptions) *Conn {
	if p.queued.Load() > 0 && o.first == nil {
		return nil // others came before
	}
	for _, c := range *p.conns.Load() {
		if o.Fresh && time.Since(c.createdAt) > freshFor {
			continue
		}
		if !p.mayOpen(c) {
			continue
		}
		if stream := c.Open(); stream != nil {
			return p.stream(c, stream)
		}
	}
	return nil
}

// stream wraps a stream on c.
func (p *http2Pool) stream(c *http2Conn, stream *http2.UpstreamStream) *Conn {
	uses := int(c.uses.Add(1))
	p.active.Add(1)
	if uses > 1 {
		p.reuses.Add(1)
	}
	conn := stream.Kept().(*Conn)
	p.pool.use(conn)
	conn.Uses, conn.Reused = uses, uses > 1
	return conn
}

// release ends a stream whose response was read completely.
func (p *http2Pool) release(c *Conn) {
	if p.ending.Add(1) > maxEnding || !c.deadlinesKnown() {
		p.ended()
		_ = c.Close()
		return
	}
	if !p.pool.endUse(c) {
		p.ended()
		return
	}
	c.stream.Finish(endGrace, p.ended)
}

// get is Pool.Get for HTTP/2. Once the upstream is known to use it, one dial serves as many
// waiting requests as a connection takes. A dial that times out is no error for a request with more time for its
// own: that dials again.
//
// If no more connections may be made, the request waits for a stream of another one as long as ctx.
func (p *http2Pool) get(ctx context.Context, o GetOptions) (*Conn, error) {
	if p.queued.Load() == 0 {
		if c, err := p.openOrDial(ctx, o); err != errFull {
			return c, err
		}
	}
	return p.awaitStream(ctx, o)
}

// openOrDial is get without waiting for a stream of another request. It returns errFull if no more connections may
// be made.
func (p *http2Pool) openOrDial(ctx context.Context, o GetOptions) (*Conn, error) {
	total := o.dialTimeout()
	if at, bounded := ctx.Deadline(); bounded {
		total = min(total, time.Until(at))
	}
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	left := total
	for {
		if c := p.openStream(&o); c != nil {
			return c, nil
		}
		d, mine := p.joinDial()
		if d == nil {
			return nil, errFull
		}
		if o.first != nil {
			p.leave(o.first)
		}
		if mine {
			return p.performDial(ctx, d, left)
		}
		select {
		case <-d.done:
			if d.err != nil && (d.err.Kind != KindTimeout || total <= d.time) {
				return nil, d.err
			}
		case <-ctx.Done():
			return nil, &DialError{Kind: classify(ctx.Err()), Addr: p.pool.target.Address, Err: ctx.Err()}
		}
		at, _ := ctx.Deadline()
		left = time.Until(at)
	}
}

// joinDial returns the dial to wait for. If mine is true, the caller must perform it. It returns nil if there are as
// many connections as there may be.
func (p *http2Pool) joinDial() (d *sharedDial, mine bool) {
	taking := 0 // connections that take requests, now or later
	for _, c := range *p.conns.Load() {
		if !c.IsLeaving() {
			taking++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.dialing {
		if d.waiting < p.room() {
			d.waiting++
			return d, false
		}
	}
	if taking+len(p.dialing) >= p.mostConns {
		return nil, false
	}
	d = &sharedDial{done: make(chan struct{}), waiting: 1} // whoever dials takes the first stream
	if p.seen || p.pool.target.Protocol == HTTP2 {
		p.dialing = append(p.dialing, d)
	}
	return d, true
}

// room returns how many streams a new connection is expected to have. It requires mu.
func (p *http2Pool) room() int {
	if limit := int(p.usesLimit.Load()); limit > 0 {
		return min(p.streams, limit)
	}
	return p.streams
}

// performDial dials for all requests that wait for d. If the dial panics, they dial again. They
// wait on until the connection says how many streams it allows.
func (p *http2Pool) performDial(ctx context.Context, d *sharedDial, left time.Duration) (c *Conn, err error) {
	var two *http2Conn
	defer func() {
		if two == nil {
			p.finishDial(d, err)
			return
		}
		two.whenSettled(func() { p.finishDial(d, nil) })
	}()
	d.time = left
	c, err = p.pool.dial(ctx, left, &GetOptions{})
	if err == nil {
		two = c.shared
	}
	return c, err
}

// finishDial wakes the waiting requests. A canceled dial is no error for them.
func (p *http2Pool) finishDial(d *sharedDial, err error) {
	p.mu.Lock()
	p.dialing = slices.DeleteFunc(p.dialing, func(o *sharedDial) bool { return o == d })
	p.wakeFirst()
	p.mu.Unlock()
	var dial *DialError
	if errors.As(err, &dial) && dial.Kind != KindCanceled {
		d.err = dial
	}
	close(d.done)
}

// usesHTTP2 reports whether c uses HTTP/2. It returns an error if c does not but must.
func (p *http2Pool) usesHTTP2(c net.Conn) (bool, error) {
	t, secure := c.(*tls.Conn)
	if !secure {
		return true, nil
	}
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		return true, nil
	}
	if p.pool.target.Protocol == HTTP2 {
		return false, errors.New("the upstream does not offer HTTP/2 by ALPN")
	}
	return false, nil
}

// firstStream starts HTTP/2 on a new connection and returns its first stream. It owns nc; below is the
// connection below TLS, or nc itself.
func (p *http2Pool) firstStream(addr string, nc, below net.Conn) *Conn {
	c := newHTTP2Conn(p, addr, nc, below)
	conn := p.stream(c, c.Open())
	p.mu.Lock()
	p.seen = true
	all := append(slices.Clone(*p.conns.Load()), c)
	p.conns.Store(&all)
	closed := p.closed
	p.mu.Unlock()
	if closed {
		c.Retire()
	}
	go p.run(c)
	return conn
}

// run serves c until it has ended.
func (p *http2Pool) run(c *http2Conn) {
	c.Run()
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(*p.conns.Load()), func(o *http2Conn) bool { return o == c })
	p.conns.Store(&rest)
	p.wakeFirst()
}

// close closes the idle connections; the others end with their last stream.
func (p *http2Pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, c := range *p.conns.Load() {
		c.Retire()
	}
}

// addStats adds the connections to st, and replaces the count of their streams.
func (p *http2Pool) addStats(st *Stats) {
	st.Streams = int(p.active.Load())
	st.Active = max(st.Active-st.Streams, 0)
	st.Reuses += p.reuses.Load()
	for _, c := range *p.conns.Load() {
		if c.InFlight() > 0 {
			st.Active++
		} else {
			st.Idle++
		}
	}
}
