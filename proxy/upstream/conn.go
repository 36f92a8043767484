package upstream

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// errNothingToRead is what peek gives for an open socket with nothing to read.
var errNothingToRead = errors.New("nothing to read")

// Conn is a connection to the upstream in the hands of one request. Read,
// Write and the deadlines are the embedded net.Conn's, TLS included.
//
// The holder ends its use by exactly one of Release, Close, Abort and
// CloseStale, and must not touch the Conn after it. Close and Abort may be called while
// another goroutine reads or writes, which ends that with an error; everything
// else is for one goroutine.
type Conn struct {
	net.Conn

	// Addr is what was dialled, "ip:port" or a socket's path; fit for GetOptions.Avoid.
	Addr string
	// Endpoint is whom Addr belongs to, to be told how the attempt went; nil where
	// the upstream has a single address.
	Endpoint *Endpoint
	// Reused says that the connection came from the pool, so that the
	// upstream may have closed it meanwhile.
	Reused bool
	// Uses counts the times it was handed out, this one included: 1 when fresh.
	Uses int
	// Buf is room for the holder's read buffer. The pool never looks into it,
	// but takes a Conn released with Buf set for one with unread bytes and
	// closes it: give the buffer back and set nil first.
	Buf []byte
	// ReadBy and WriteBy are the deadlines now set, where the last holder said
	// so, by the clock of Options.Start; zero says nothing. They stay over Release, since moving two timers
	// twice for every request costs more than all the rest of the pool.
	ReadBy, WriteBy time.Duration

	pool       *Pool
	stream     bool            // of an HTTP/2 connection: used once, never pooled
	tls        *tlsWire        // below TLS, else nil
	raw        syscall.RawConn // nil when there is no socket below (tests)
	fd         int32           // the plain socket, to be looked at while it is idle; -1 when there is none
	peekSocket func(fd uintptr)
	exchange   exchangeState

	// Result of look. The bytes are enough for the start of a status line.
	peeked    [12]byte
	peekedLen int
	peekErr   error

	keepAlive  time.Duration // idle age allowed by the upstream's Keep-Alive field; 0 = it said nothing
	releasedAt time.Duration // pool time of the last release
	idleFor    time.Duration // how long it was idle when last handed out

	state connState // guarded by pool.mu
}

type connState uint8

const (
	connInUse connState = iota
	connIdle
	connClosed
)

// newConn counts the connection as active.
func (p *Pool) newConn(addr string, c net.Conn, below *tlsWire) *Conn {
	conn := &Conn{Conn: c, Addr: addr, Endpoint: p.endpoint, Uses: 1, pool: p, tls: below, fd: -1}
	if s, ok := conn.wire().(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			conn.raw = raw
			conn.peekSocket = func(fd uintptr) { conn.peekedLen, conn.peekErr = peek(fd, conn.peeked[:]) }
			if below == nil {
				_ = raw.Control(func(fd uintptr) { conn.fd = int32(fd) })
			}
		}
	}
	p.mu.Lock()
	p.addActive(1)
	p.mu.Unlock()
	return conn
}

// wire is the connection at the bottom, below TLS.
func (c *Conn) wire() net.Conn {
	if c.tls != nil {
		return rawsocket.Unwrap(c.tls.Conn)
	}
	return rawsocket.Unwrap(c.Conn)
}

// Writev writes all of parts, with one system call where that is possible. It
// cuts parts to what is left.
func (c *Conn) Writev(parts [][]byte) (int, error) { return rawsocket.Writev(c.Conn, parts) }

// Stream reports whether the connection is one stream of an HTTP/2 connection: it ends with its request.
func (c *Conn) Stream() bool { return c.stream }

// Acked is how many bytes the upstream's system has confirmed on the connection; 0 where it cannot be known.
func (c *Conn) Acked() uint64 { return rawsocket.Acked(c.wire()) }

// Fresh reports whether the connection was dialled for this use.
func (c *Conn) Fresh() bool { return !c.Reused }

// Raw gives the plain connection below, for what a net.Conn does not offer (a
// *net.TCPConn's ReadFrom moves bytes inside the kernel), or nil with TLS. It
// is the same stream; do not close it.
func (c *Conn) Raw() net.Conn {
	if c.tls != nil {
		return nil
	}
	return rawsocket.Unwrap(c.Conn)
}

// TLS gives the state of the TLS connection, or nil without TLS.
func (c *Conn) TLS() *tls.ConnectionState {
	t, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	s := t.ConnectionState()
	return &s
}

// Release gives the connection back to the pool for the next request. Call it
// only when the response was read to its end and both sides mean to go on.
// keepAlive is the timeout of the response's Keep-Alive field; 0 means there was none
// and an earlier one stays. The pool closes the connection instead when Buf is
// set, when TLS still holds unread bytes, when the pool is full or closed.
// Deadlines are taken off, unless ReadBy and WriteBy tell the next holder of
// them. Releasing what is not held does nothing.
func (c *Conn) Release(keepAlive time.Duration) { c.ReleaseAt(0, keepAlive) }

// ReleaseAt is Release for who looked at the clock of Options.Start a moment ago.
func (c *Conn) ReleaseAt(now, keepAlive time.Duration) {
	if keepAlive > 0 {
		c.keepAlive = keepAliveLimit(keepAlive)
	}
	if c.stream {
		c.pool.http2.release(c)
		return
	}
	if c.Buf != nil || c.tls != nil && !c.tls.isDrained(c.Conn, c.peeked[:]) || !c.deadlinesKnown() {
		_ = c.Close()
		return
	}
	if !c.pool.put(c, now) {
		c.shut(false)
	}
}

// deadlinesKnown leaves the deadlines where the next holder is told of them,
// and takes them off otherwise; false: the connection is closed.
func (c *Conn) deadlinesKnown() bool {
	if c.ReadBy != 0 && c.WriteBy != 0 {
		return true
	}
	c.ReadBy, c.WriteBy = 0, 0
	return c.SetDeadline(time.Time{}) == nil
}

// Close ends the connection. With TLS it says close_notify first, for which a
// peer that does not read can make it wait up to 5 s; Abort never waits. Closing twice does nothing.
func (c *Conn) Close() error {
	if !c.pool.drop(c) {
		return nil
	}
	return c.Conn.Close()
}

// Abort ends the connection so that the upstream notices at once and cannot
// take it for a proper end: TCP is reset (SO_LINGER 0, unsent bytes are thrown
// away), TLS is cut off without close_notify. A unix socket has no reset and is
// closed.
func (c *Conn) Abort() {
	if c.pool.drop(c) {
		c.shut(true)
	}
}

// CloseStale is Close for a Reused connection that the upstream turned out to
// have closed while it was idle: its end was seen before any byte of the
// answer. The pool counts it and learns how long the upstream keeps idle
// connections. Never call it for what may have been sent and processed.
func (c *Conn) CloseStale() {
	if c.pool.drop(c) {
		c.pool.idleClosed(c.idleFor)
		c.shut(false)
	}
}

// shut closes the socket without close_notify and without waiting. reset asks
// for a TCP reset.
func (c *Conn) shut(reset bool) {
	w := c.wire()
	if t, ok := w.(*net.TCPConn); ok && reset {
		_ = t.SetLinger(0)
	}
	_ = w.Close()
}

// idleState is what a look at an idle connection brings.
type idleState uint8

const (
	idleOpen        idleState = iota // still open, nothing said
	idleClosed                       // closed by the upstream, by end, reset or a 408
	idleUnsolicited                  // it said something that no request asked for
)

// checkIdle looks at the socket of an idle connection. Cost: one system call; no
// allocation. A connection without a socket is always quiet.
func (c *Conn) checkIdle() idleState {
	if c.raw == nil {
		return idleOpen
	}
	if err := c.raw.Control(c.peekSocket); err != nil {
		return idleClosed
	}
	return c.idleState()
}

// idleState is what the last look means.
func (c *Conn) idleState() idleState {
	switch {
	case c.peekErr == errNothingToRead:
		return idleOpen
	case c.peekErr != nil || c.peekedLen == 0:
		return idleClosed
	case c.tls != nil:
		// Encrypted, so it cannot be told apart; what a server says on an
		// idle connection is nearly always close_notify.
		return idleClosed
	case isRequestTimeout(c.peeked[:c.peekedLen]):
		return idleClosed
	}
	return idleUnsolicited
}

// isRequestTimeout: some servers say 408 before they close an idle connection
// (RFC 9110 section 15.5.9).
func isRequestTimeout(p []byte) bool {
	return len(p) == 12 && bytes.HasPrefix(p, []byte("HTTP/1.")) && bytes.Equal(p[8:], []byte(" 408"))
}
