package upstream

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// errNothingToRead is returned by peek for an open socket with nothing to read.
var errNothingToRead = errors.New("nothing to read")

// Conn is a connection to the upstream, owned by one request. Write and the deadlines are the embedded
// net.Conn's, TLS included.
//
// The owner ends its use with exactly one of Release, Close, Abort, CloseStale and
// CloseUnsent, and must not use the Conn after it. Close and Abort may be called while
// another goroutine reads or writes, which then fails. All other methods are not safe for
// concurrent use.
type Conn struct {
	net.Conn

	// Addr is the address dialed, "ip:port" or a socket's path; usable as GetOptions.Avoid.
	Addr string
	// Endpoint is the owner of Addr, to which the result of the attempt is reported. It is
	// nil if the upstream has a single fixed address.
	Endpoint *Endpoint
	// Reused means that the connection came from the pool, so the upstream may have closed
	// it in the meantime.
	Reused bool
	// Uses counts how often it was taken, this time included: 1 when fresh.
	Uses int

	readBy, writeBy time.Duration // deadlines now set, in pool time; 0: none, or unknown

	pool       *Pool
	stream     *http2.UpstreamStream // of an HTTP/2 connection, which keeps the Conn for its next request; nil: HTTP/1.1
	shared     *http2Conn            // that connection
	atEnd      bool                  // all of its response was read
	bounded    bool                  // dialed with GetOptions.BoundUnsent
	tls        *tlsWire              // the connection below TLS; nil without TLS
	raw        syscall.RawConn       // nil without a socket (tests)
	fd         int32                 // the plain socket, for checks while idle; -1 without one
	peekSocket func(fd uintptr)
	exchange   exchangeState

	// The result of peek. The bytes are enough for the start of a status line.
	peeked    [12]byte
	peekedLen int
	peekErr   error

	keepAlive  time.Duration // idle age that the upstream's Keep-Alive header allows; 0 = none seen
	releasedAt time.Duration // pool time of the last release

	state connState // guarded by pool.mu
}

type connState uint8

const (
	connInUse connState = iota
	connIdle
	connClosed
)

// newConn wraps c and counts it as active.
func (p *Pool) newConn(addr string, c net.Conn, below *tlsWire) *Conn {
	conn := p.makeConn(addr, c, below)
	p.use(conn)
	return conn
}

// makeConn makes a Conn that is not in use yet.
func (p *Pool) makeConn(addr string, c net.Conn, below *tlsWire) *Conn {
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
	return conn
}

// use records that c is in use: a new one, or that of a stream by its next request.
func (p *Pool) use(c *Conn) {
	c.atEnd = false
	p.mu.Lock()
	defer p.mu.Unlock()
	c.state = connInUse
	p.addActive(1)
}

// wire returns the connection at the bottom, below TLS.
func (c *Conn) wire() net.Conn {
	if c.tls != nil {
		return rawsocket.Unwrap(c.tls.Conn)
	}
	return rawsocket.Unwrap(c.Conn)
}

// Host returns the value of a Host header for the endpoint, as Target.Host of its own target.
func (c *Conn) Host() string { return c.pool.target.Host }

// IsBounded reports whether the connection was dialed with GetOptions.BoundUnsent, which makes bulk transfers
// over loopback dearer.
func (c *Conn) IsBounded() bool { return c.bounded }

// Form returns how the header sections of requests are written for the connection, and whose rules those of
// responses follow: a Block comes back as a record (see http1.Response.Compose).
func (c *Conn) Form() wire.Form {
	if c.stream != nil {
		return wire.Block
	}
	return wire.Lines
}

// Begin sends the headers of a request, whose fields are parts[0], and what is here of its body, in the
// framing of HTTP/1.1 if it is written as Lines. ends means that this is all. It returns how many bytes were
// taken, and may cut parts to what is left.
func (c *Conn) Begin(head *wire.Head, parts [][]byte, ends bool, trailers []http1.Header) (int, error) {
	if c.stream == nil {
		return rawsocket.Writev(c.Conn, parts)
	}
	if err := c.stream.WriteHeaders(head, ends && len(parts) == 1 && len(trailers) == 0); err != nil {
		return 0, err
	}
	n, err := len(parts[0]), error(nil)
	if len(parts) == 1 && (!ends || len(trailers) == 0) {
		c.stream.Flush()
	} else {
		var m int
		m, err = c.SendBody(parts[1:], ends, trailers)
		n += m
	}
	return n, err
}

// SendBody sends parts of the body, likewise. Its end may come without a part.
func (c *Conn) SendBody(parts [][]byte, ends bool, trailers []http1.Header) (n int, err error) {
	switch {
	case c.stream == nil && len(parts) == 0:
		return 0, nil
	case c.stream == nil:
		return rawsocket.Writev(c.Conn, parts)
	case !ends || len(trailers) == 0:
		return c.stream.WriteBody(parts, ends)
	}
	if n, err = c.stream.WriteBody(parts, false); err == nil {
		err = c.stream.WriteTrailers(trailers)
	}
	return n, err
}

// ReadResponse reads the header section of a response at the beginning of b, as http1.Response.Parse does.
func (c *Conn) ReadResponse(r *http1.Response, b []byte, limits http1.Limits, method []byte) (n int, err error) {
	if c.stream != nil {
		return r.Compose(b, limits, method)
	}
	return r.Parse(b, limits, method)
}

// Read reads the response. On a stream it returns io.EOF at the end of the body, maybe with its last bytes.
func (c *Conn) Read(p []byte) (int, error) {
	if c.stream == nil {
		return c.Conn.Read(p)
	}
	n, err := c.stream.ReadBody(p)
	c.atEnd = err == io.EOF
	return n, err
}

// ReadHead is Read for the beginning of a stream's response, which it hands over in its buffer.
func (c *Conn) ReadHead() (buffer.Handle, error) {
	head, err := c.stream.ReadHead()
	c.atEnd = err == io.EOF
	return head.Take(), err
}

// AtEnd reports whether Read has returned the end of a body that ends with its stream.
func (c *Conn) AtEnd() bool { return c.atEnd }

// Trailers returns the trailers of a response that ended with its stream.
func (c *Conn) Trailers() []http1.Header {
	if c.stream == nil {
		return nil
	}
	return c.stream.Trailers()
}

// Stream reports whether the connection is a stream of an HTTP/2 connection, which ends
// with its request.
func (c *Conn) Stream() bool { return c.stream != nil }

// Acked returns how many bytes the upstream's system has acknowledged on the connection; 0
// if unknown.
func (c *Conn) Acked() uint64 { return rawsocket.Acked(c.wire()) }

// Unacknowledged reports whether the upstream's system acknowledges nothing of what was sent. It
// returns false if that cannot be known.
func (c *Conn) Unacknowledged() bool {
	if c.stream == nil {
		return rawsocket.Unacknowledged(c.wire())
	}
	gone := rawsocket.Unacknowledged(c.shared.wire)
	if gone {
		c.shared.Retire()
	}
	return gone
}

// Raw returns the plain connection, for methods that a net.Conn lacks (a *net.TCPConn's
// ReadFrom moves bytes inside the kernel), or nil with TLS. It is the same stream; do not
// close it.
func (c *Conn) Raw() net.Conn {
	if c.tls != nil {
		return nil
	}
	return rawsocket.Unwrap(c.Conn)
}

// TLS returns the state of the TLS connection, or nil without TLS.
func (c *Conn) TLS() *tls.ConnectionState {
	t, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	s := t.ConnectionState()
	return &s
}

// Release returns the connection to the pool for the next request. Call it only if the
// response was read to its end and neither side closes. keepAlive is the timeout of the
// response's Keep-Alive header; 0 means there was none, and an earlier one stays. The pool
// closes the connection instead if TLS holds unread bytes, or if the pool is full or closed.
// Deadlines are removed, unless SetReadBy and SetWriteBy have set both. Releasing a Conn twice does nothing.
func (c *Conn) Release(keepAlive time.Duration) { c.ReleaseAt(0, keepAlive) }

// ReleaseAt is like Release for a caller that has just read the clock of Options.Start; 0
// means read the clock.
func (c *Conn) ReleaseAt(now, keepAlive time.Duration) {
	if keepAlive > 0 {
		c.keepAlive = keepAliveLimit(keepAlive)
	}
	if c.stream != nil {
		c.pool.http2.release(c)
		return
	}
	if c.tls != nil && !c.tls.isDrained(c.Conn, c.peeked[:]) || !c.deadlinesKnown() {
		_ = c.Close()
		return
	}
	if !c.pool.put(c, now) {
		c.closeSocket(false)
	}
}

// deadlinesKnown keeps the deadlines if the next owner can see them, and removes them
// otherwise. It returns false if the connection is closed.
func (c *Conn) deadlinesKnown() bool {
	if c.readBy != 0 && c.writeBy != 0 {
		return true
	}
	c.ForgetDeadlines()
	return c.SetDeadline(time.Time{}) == nil
}

// SetReadBy sets the read deadline, by the clock of Options.Start; 0 means none. It survives Release, as that
// of SetWriteBy, since resetting two timers per request costs more than the rest of the pool.
func (c *Conn) SetReadBy(by time.Duration) {
	c.readBy = by
	_ = c.SetReadDeadline(c.pool.at(by))
}

// SetWriteBy sets the write deadline, by the clock of Options.Start; 0 means none.
func (c *Conn) SetWriteBy(by time.Duration) {
	c.writeBy = by
	_ = c.SetWriteDeadline(c.pool.at(by))
}

// ReadBy returns the deadline of SetReadBy; 0 means none, or unknown.
func (c *Conn) ReadBy() time.Duration { return c.readBy }

// WriteBy returns the deadline of SetWriteBy; 0 means none, or unknown.
func (c *Conn) WriteBy() time.Duration { return c.writeBy }

// ForgetReadBy notes that the read deadline was set by SetReadDeadline meanwhile.
func (c *Conn) ForgetReadBy() { c.readBy = 0 }

// ForgetDeadlines notes that both deadlines were set by other methods meanwhile.
func (c *Conn) ForgetDeadlines() { c.readBy, c.writeBy = 0, 0 }

// closeNotifyTime bounds the wait for a peer that does not read to take close_notify.
const closeNotifyTime = 100 * time.Millisecond

// Close ends the connection. With TLS it sends close_notify first, for which a peer that
// does not read can delay it by closeNotifyTime; Abort never waits. Closing twice does nothing.
func (c *Conn) Close() error {
	if !c.pool.endUse(c) {
		return nil
	}
	if c.tls != nil {
		defer closeSocketsLater(c).Stop()
	}
	return c.Conn.Close()
}

// closeIdle closes connections that nobody uses, as Close does. Their peers together can delay it
// by closeNotifyTime.
func closeIdle(conns []*Conn) {
	if len(conns) == 0 {
		return
	}
	defer closeSocketsLater(conns...).Stop()
	for _, c := range conns {
		_ = c.Conn.Close()
	}
}

// closeSocketsLater closes the sockets of conns after closeNotifyTime, which ends a write that waits
// for the peer. crypto/tls itself would wait for 5 s.
func closeSocketsLater(conns ...*Conn) *time.Timer {
	return time.AfterFunc(closeNotifyTime, func() {
		for _, c := range conns {
			c.closeSocket(false)
		}
	})
}

// Abort ends the connection so that the upstream notices at once and cannot mistake it for
// a proper end. TCP is reset (SO_LINGER 0, unsent bytes are discarded), and TLS is cut off
// without close_notify. A unix socket has no reset and is closed.
func (c *Conn) Abort() {
	if c.pool.endUse(c) {
		c.closeSocket(true)
	}
}

// CloseStale closes a Reused connection that the upstream had closed while it was idle: its
// end was seen before any byte of the response. The pool counts it. Never call it if the request
// may have been processed.
func (c *Conn) CloseStale() { c.closeIdled(idleClosed) }

// closeIdled ends the use of a connection whose state was f while it was idle.
func (c *Conn) closeIdled(f idleState) {
	if !c.pool.endUse(c) {
		return
	}
	c.pool.mu.Lock()
	c.pool.recordIdleState(f)
	c.pool.mu.Unlock()
	c.closeSocket(false)
}

// closeSocket closes the socket without close_notify and without waiting; with reset, by a TCP
// reset.
func (c *Conn) closeSocket(reset bool) {
	w := c.wire()
	if t, ok := w.(*net.TCPConn); ok && reset {
		_ = t.SetLinger(0)
	}
	_ = w.Close()
}

// idleState is the result of a check of an idle connection.
type idleState uint8

const (
	idleOpen        idleState = iota // still open, nothing received
	idleClosed                       // closed by the upstream: end of stream, reset or a 408
	idleUnsolicited                  // it sent something without a request
)

// checkIdle checks the socket of an idle connection. It costs one system call and does not
// allocate. A connection without a socket is always idleOpen.
func (c *Conn) checkIdle() idleState {
	if c.raw == nil {
		return idleOpen
	}
	if err := c.raw.Control(c.peekSocket); err != nil {
		return idleClosed
	}
	return c.idleState()
}

// idleState interprets the result of the last peek.
func (c *Conn) idleState() idleState {
	switch {
	case c.peekErr == errNothingToRead:
		return idleOpen
	case c.peekErr != nil || c.peekedLen == 0:
		return idleClosed
	case c.tls != nil:
		// Encrypted, so it cannot be distinguished. On an idle connection a server nearly
		// always sends close_notify.
		return idleClosed
	case isRequestTimeout(c.peeked[:c.peekedLen]):
		return idleClosed
	}
	return idleUnsolicited
}

// isRequestTimeout reports whether p starts a 408: some servers send it before they close
// an idle connection (RFC 9110 section 15.5.9).
func isRequestTimeout(p []byte) bool {
	return len(p) == 12 && bytes.HasPrefix(p, []byte("HTTP/1.")) && bytes.Equal(p[8:], []byte(" 408"))
}

// TCP returns the connection for the kernel to move bytes from and to, or nil if there is none (TLS,
// unix sockets, tests in memory).
func (c *Conn) TCP() *net.TCPConn {
	t, _ := c.Raw().(*net.TCPConn)
	return t
}

// ErrStale is returned by SendChecked if the upstream had closed the connection, or had
// sent something without a request. Nothing was sent.
var ErrStale = errors.New("the upstream closed the idle connection, or sent stray bytes on it")

// exchangeState is the state of one SendChecked. It is part of Conn to avoid allocations.
type exchangeState struct {
	try   func(fd uintptr) bool
	out   [][]byte
	in    []byte
	begun bool
	sent  int
	n     int
	err   error
	vecs  rawsocket.Vectors
}

// CanSendChecked reports whether SendChecked works here: there is a socket, and no TLS on
// it.
func (c *Conn) CanSendChecked() bool { return c.raw != nil && c.tls == nil }

// StillOpen checks a connection taken with GetOptions.Unchecked and not used by
// SendChecked. If it returns false, end it with CloseUnsent.
func (c *Conn) StillOpen() bool { return c.checkIdle() == idleOpen }

// SendChecked checks whether the connection is still open and idle, writes the parts, and
// reads the first bytes of the response into in. It costs as much as a plain write and read
// (three system calls: such a read fails once before it waits). It leaves no gap between
// check and write.
//
// sent is the number of bytes written, and parts are cut to what is left. If that is less
// than all and err is nil, the socket's buffer is full and the caller must write the rest.
// n bytes were read. With ErrStale nothing was sent; end the Conn with CloseUnsent. Other
// errors are the socket's, io.EOF, or os.ErrDeadlineExceeded if the read deadline passed
// with all sent.
func (c *Conn) SendChecked(parts [][]byte, in []byte) (sent, n int, err error) {
	a := &c.exchange
	if a.try == nil {
		a.try = c.tryExchange
	}
	a.out, a.in, a.begun, a.sent, a.n, a.err = parts, in, false, 0, 0, nil
	err = c.raw.Read(a.try)
	a.out, a.in = nil, nil
	if err == nil {
		err = a.err
	}
	return a.sent, a.n, err
}

// tryExchange is called first to send, then whenever the socket may be readable. The
// runtime tracks readability from before the first call, so a fast response cannot be
// missed. It returns true to stop waiting.
func (c *Conn) tryExchange(fd uintptr) bool {
	a := &c.exchange
	if !a.begun {
		a.begun = true
		if c.peekedLen, c.peekErr = peek(fd, c.peeked[:]); c.peekErr != errNothingToRead {
			a.err = ErrStale
			return true
		}
		return !a.send(fd)
	}
	a.n, a.err = rawsocket.TryRead(fd, a.in)
	switch {
	case a.err == syscall.EAGAIN:
		a.n, a.err = 0, nil
		return false
	case a.err != nil:
		a.n, a.err = 0, os.NewSyscallError("read", a.err)
	case a.n == 0:
		a.err = io.EOF
	}
	return true
}

// send writes and reports whether all of it was accepted.
func (a *exchangeState) send(fd uintptr) bool {
	n, err := rawsocket.TryWritev(fd, a.out, &a.vecs)
	switch {
	case err == syscall.EAGAIN:
		return false
	case err != nil:
		a.err = os.NewSyscallError("write", err)
		return false
	}
	a.sent = n
	return rawsocket.Consume(a.out, n) == 0
}

// CloseUnsent ends a connection that SendChecked found stale. The pool counts it like those that
// its own checks find.
func (c *Conn) CloseUnsent() { c.closeIdled(c.idleState()) }

// peek reads what the socket has received, without consuming it and without waiting. It
// returns n > 0 bytes copied to p, n == 0 and a nil error at the end of the stream,
// errNothingToRead if there is nothing, or else the socket's error.
func peek(fd uintptr, p []byte) (int, error) {
	n, err := rawsocket.TryPeek(fd, p)
	if err == syscall.EAGAIN {
		err = errNothingToRead
	}
	return n, err
}
