package upstream

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// settleWithin is how long the SETTINGS of the upstream are waited for. After it, as many streams are
// allowed as an upstream should.
const settleWithin = time.Second

// http2Conn is an HTTP/2 connection.
type http2Conn struct {
	*http2.Upstream
	pool      *http2Pool
	addr      string
	wire      net.Conn // below TLS
	createdAt time.Time

	uses atomic.Int64 // streams taken

	isSettled atomic.Bool // it is known how many streams are allowed
	mu        sync.Mutex  // guards the fields below
	settled   func()      // called once isSettled is true; nil: no one waits
	timer     *time.Timer // ends the wait for SETTINGS
}

// newHTTP2Conn makes an HTTP/2 connection of nc; below is the connection below TLS, or nc itself. The
// caller runs it.
func newHTTP2Conn(s *http2Pool, addr string, nc, below net.Conn) *http2Conn {
	c := &http2Conn{pool: s, addr: addr, wire: rawsocket.Unwrap(below), createdAt: time.Now()}
	o := http2.UpstreamOptions{
		Limits: http2.Limits{
			ReadAhead: s.ahead, HeaderBytes: maxHTTP2HeaderBytes, HeaderTimeout: headerTime,
			IdleTimeout: s.pool.idleAge, PingAfter: pingInterval, WriteTimeout: writeTime,
		},
		Secure:  s.pool.target.TLS != nil,
		Settled: c.settle, Leaving: c.leaves, WentAway: c.wentAway, Freed: s.freed,
		Silent: func() bool { return rawsocket.Silent(c.wire) },
		Keep: func(stream *http2.UpstreamStream) any {
			conn := s.pool.makeConn(addr, stream, nil)
			conn.stream, conn.shared = stream, c
			return conn
		},
	}
	if raw, ok := nc.(*rawsocket.Conn); ok {
		o.TryWrite, o.TryWritev = raw.TryWrite, raw.TryWritev
	}
	c.Upstream = http2.NewUpstream(nc, &o)
	return c
}

// settle records that the upstream's SETTINGS are in force, and allow streams at once.
func (c *http2Conn) settle(streams int) {
	c.pool.noteStreams(streams)
	c.endWait()
}

// assume ends the wait for the upstream's SETTINGS.
func (c *http2Conn) assume() {
	c.AssumeSettings()
	c.endWait()
}

func (c *http2Conn) endWait() {
	c.mu.Lock()
	c.isSettled.Store(true)
	do := c.settled
	c.settled = nil
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if do != nil {
		do()
	}
}

// whenSettled calls do once it is known how many streams c allows, possibly at once.
func (c *http2Conn) whenSettled(do func()) {
	c.mu.Lock()
	if !c.isSettled.Load() {
		c.settled, do = do, nil
		c.timer = time.AfterFunc(settleWithin, c.assume)
	}
	c.mu.Unlock()
	if do != nil {
		do()
	}
}

// leaves is called once, when c takes no more requests.
func (c *http2Conn) leaves() {
	c.endWait()
	c.pool.requestLookup()
}

// wentAway is called when the upstream did not process all streams before its GOAWAY. Those that it took are how
// many requests it takes on one connection, as servers limit them (nginx's keepalive_requests). Streams beyond
// that would all be sent in vain. A connection of which it took none shows no such limit: the upstream refused
// it, or restarts.
func (c *http2Conn) wentAway(taken int) { c.pool.usesLimit.Store(int64(taken)) }

// mayOpen reports whether c has room for a stream. Streams beyond usesLimit are opened one at a
// time. If the upstream processes one, it has no such limit: it ended an earlier connection for
// another reason, as when it restarted.
func (p *http2Pool) mayOpen(c *http2Conn) bool {
	limit := p.usesLimit.Load()
	if limit == 0 || c.uses.Load() < limit {
		return true
	}
	if c.InFlight() > 0 || c.IsLeaving() {
		return false
	}
	if c.uses.Load() > limit {
		p.usesLimit.CompareAndSwap(limit, 0)
	}
	return true
}
