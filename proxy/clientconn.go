package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/bridge"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// past is a deadline that ends any read or write at once.
var past = time.Unix(1, 0)

// What a connection's goroutine is doing, for those that want to wake it.
const (
	phaseBusy int32 = iota
	phaseIdle       // waiting for a request's first byte
	phaseBackoff
	phaseHeaders // waiting for the rest of a head
)

// conn is one client's HTTP/1.1 connection. One goroutine serves it; a second
// one (the pump) reads from it while a body is sent or the upstream is waited
// for, and hands the reading back when it ends.
type conn struct {
	server             *Server
	nc                 net.Conn
	wire               net.Conn             // below TLS, else nc itself
	stream             *bridge.ClientStream // nil unless this is one stream of an HTTP/2 connection
	secure             *tls.Conn            // nil without TLS, and for a stream
	isSecure           bool                 // the client, or the connection of this stream, came over TLS
	tcp                *net.TCPConn         // nil unless plain TCP
	raw                syscall.RawConn      // of wire; nil where there is no descriptor
	listen             string
	used               bool         // it has sent something
	parks              bool         // it may be parked when idle
	handedToPoller     bool         // it was parked: this goroutine's part is done
	expectsProxyHeader bool         // it begins with a header of the PROXY protocol, not yet read
	proxyAddr          *net.TCPAddr // who the client is, by that header; nil: who the connection says
	peer               forward.Peer
	peerSettings       *settings // the version that peer was judged by
	req                http1.Request
	x                  exchange

	in   []byte // read buffer, nil while idle; in[r:w] is read and not yet used
	r, w int

	readAt         instant // read deadline now set
	idleEnd        instant // of the wait that was begun before it was parked; zero: none was
	writeAt        instant // write deadline now set
	phase          atomic.Int32
	evicted        atomic.Bool // it is to end, as others need its slot
	countedLeaving bool        // see leaves
	cost           int64       // what it is charged for, of the memory for clients

	idleFrom atomic.Int64 // instant; with phaseIdle and phaseHeaders
	writing  atomic.Int64 // instant since when a write to the client has lasted; zero: none is in flight
	tunnel   atomic.Pointer[tunnel]
	http2    atomic.Pointer[http2Conn] // set once the client turned out to speak HTTP/2

	idleRead func(fd uintptr) bool // kept so that an idle read allocates nothing
	nowRead  func(fd uintptr) bool // likewise
	now      readOnce

	readSize int // of the buffer that the next request is read into
}

func newConn(s *Server, nc net.Conn, listen string) *conn {
	c := newPlainConn(s, nc, listen)
	n := s.settings.Load()
	if c.expectsProxyHeader = n.announces(nc); !c.expectsProxyHeader {
		c.startTLS(n)
	}
	return c
}

// newPlainConn is newConn for a connection known to be without TLS.
func newPlainConn(s *Server, nc net.Conn, listen string) *conn {
	c := &conn{server: s, listen: listen, readSize: smallBuffer}
	c.tcp, _ = nc.(*net.TCPConn)
	c.wire = rawsocket.Wrap(nc)
	c.nc = c.wire
	if s, ok := c.wire.(*rawsocket.Conn); ok {
		c.raw, _ = s.SyscallConn()
		c.boundUnsent()
	}
	c.idleRead, c.nowRead = c.readIdle, c.now.read
	c.x.init(c)
	return c
}

// unsentBytes is what the kernel keeps for a client that takes nothing, where memory is
// bounded: by itself it keeps megabytes, which count as the container's.
const unsentBytes = 64 << 10

func (c *conn) boundUnsent() {
	if c.tcp != nil && c.raw != nil && c.server.clients.memory > 0 {
		rawsocket.BoundUnsent(c.raw, unsentBytes)
	}
}

// setRead moves the read deadline to t, or to somewhat later: by at most slack,
// so that it stays where it is most of the time. Moving a timer costs more
// than reading a clock.
func (c *conn) setRead(t instant, slack time.Duration) {
	if d := c.readAt.Sub(t); d >= 0 && d <= slack {
		return
	}
	c.readAt = t.Add(slack)
	_ = c.nc.SetReadDeadline(c.server.at(c.readAt))
}

// write sends p whole. The deadline is the one for a reader that takes nothing.
func (c *conn) write(p []byte, now instant) error {
	c.extendWrite(now)
	c.writing.Store(int64(now))
	_, err := c.nc.Write(p)
	c.writing.Store(0)
	return err
}

// writeBoth is write for what is in two places.
func (c *conn) writeBoth(p, q []byte, now instant) error {
	c.extendWrite(now)
	c.writing.Store(int64(now))
	_, err := rawsocket.WriteBoth(c.nc, p, q)
	c.writing.Store(0)
	return err
}

// extendWrite keeps the write deadline between one and two write timeouts away.
func (c *conn) extendWrite(now instant) {
	timeout := c.x.set.WriteTimeout
	if timeout <= 0 {
		return
	}
	if c.writeAt.Sub(now) >= timeout {
		return
	}
	c.writeAt = now.Add(2 * timeout)
	_ = c.nc.SetWriteDeadline(c.server.at(c.writeAt))
}

// writeTimedOut says whether the write deadline has passed.
func (c *conn) writeTimedOut() bool {
	return !c.writeAt.IsZero() && !c.server.now().Before(c.writeAt)
}

// fill reads once into the free tail of the buffer.
func (c *conn) fill() error {
	n, err := c.nc.Read(c.in[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// fillIdle waits for the first bytes of a request. A connection with a
// descriptor waits without a buffer: that is most of what an idle client costs.
func (c *conn) fillIdle() error {
	if c.raw == nil || c.secure != nil {
		c.x.spareBuffers.release()
		if c.in == nil {
			c.in = getBuffer(smallBuffer)
		}
		return c.fill()
	}
	c.now.err = nil
	if err := c.raw.Read(c.idleRead); err != nil {
		c.releaseIdleBuffers() // it may have been over before the first look
		return err
	}
	return c.now.err
}

// readIdle is called when the descriptor may be readable, says whether it was.
func (c *conn) readIdle(fd uintptr) bool {
	if c.in == nil {
		c.in = getBuffer(c.readSize)
		c.r, c.w = 0, 0
	}
	n, err := rawsocket.TryRead(fd, c.in[c.w:])
	c.w += n
	switch {
	case err == syscall.EAGAIN:
		c.releaseIdleBuffers()
		return false
	case err != nil:
		c.now.err = os.NewSyscallError("read", err)
	case n == 0:
		c.now.err = io.EOF
	}
	return true
}

// readNow reads once without a wait: nothing and no error when nothing is
// there. Not under TLS.
func (c *conn) readNow(p []byte) (int, error) {
	c.now.p, c.now.n, c.now.err = p, 0, nil
	err := c.raw.Read(c.nowRead)
	c.now.p = nil
	switch {
	case isTimeout(err) || err == nil && c.now.err == syscall.EAGAIN:
		return 0, nil
	case err == nil && c.now.err == nil && c.now.n == 0:
		return 0, errBodyCut
	case err != nil || c.now.err != nil:
		return 0, errClientGone
	}
	return c.now.n, nil
}

// readOnce is one try, whatever comes of it.
type readOnce struct {
	p   []byte
	n   int
	err error
}

func (r *readOnce) read(fd uintptr) bool {
	r.n, r.err = rawsocket.TryRead(fd, r.p)
	return true
}

// sizeNextRead sizes the buffer for the next request by this one: clients that send
// small bodies send more of them, and head and body then come in one read.
func (c *conn) sizeNextRead(f http1.Framing) {
	c.readSize = smallBuffer
	if f.Kind == http1.BodyLength && f.Length <= wideBuffer {
		c.readSize = min(c.r+int(f.Length), wideBuffer)
	}
}

// releaseIdleBuffers gives all empty buffers back: nobody knows how long the wait will be.
func (c *conn) releaseIdleBuffers() {
	c.dropBuffer()
	c.x.spareBuffers.release()
}

// dropBuffer gives an empty read buffer back.
func (c *conn) dropBuffer() {
	if c.in != nil && c.r == c.w {
		c.putIn()
	}
}

// compact moves the unused bytes to the front of the buffer.
func (c *conn) compact() {
	switch {
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.r > 0:
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
}

// abort closes the connection so that the client sees a reset, not an orderly
// end: TLS says no close_notify.
func (c *conn) abort() {
	if tcp, ok := rawsocket.Unwrap(c.wire).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.wire.Close()
}

// Bounds for reading on after a response that came before the request's end,
// so that the response is not destroyed by a reset (RFC 9112 section 9.6).
const (
	lingerBytes = 256 << 10
	lingerTime  = time.Second
)

// closeGently sends our end first, then reads what the client still sends,
// within bounds, so that it can read our last response.
func (c *conn) closeGently() {
	if hc, ok := c.nc.(interface{ CloseWrite() error }); ok && hc.CloseWrite() == nil {
		_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.nc, lingerBytes)
	}
	_ = c.nc.Close()
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
