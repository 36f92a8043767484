package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// past is a deadline that ends any read or write at once.
var past = time.Unix(1, 0)

// What a connection's goroutine is doing, for those that want to wake it.
const (
	phaseBusy int32 = iota
	phaseIdle       // waiting for a request's first byte
	phaseBackoff
)

// conn is one caller's HTTP/1.1 connection. One goroutine serves it; a second
// one (the pump) reads from it while a body is sent or the upstream is waited
// for, and hands the reading back when it ends.
type conn struct {
	server *Server
	nc     net.Conn
	tcp    *net.TCPConn    // nil unless TCP
	raw    syscall.RawConn // nil where there is no descriptor
	listen string
	used   bool // it has sent something
	peer   forward.Peer
	peerBy *settings // the version that peer was judged by
	req    http1.Request
	x      exchange

	in   []byte // read buffer, nil while idle; in[r:w] is read and not yet used
	r, w int

	readAt  time.Time // read deadline now set
	writeAt time.Time // write deadline now set
	phase   atomic.Int32

	idleRead func(fd uintptr) bool // kept so that an idle read allocates nothing
	idleErr  error
}

func newConn(s *Server, nc net.Conn, listen string) *conn {
	c := &conn{server: s, nc: nc, listen: listen}
	c.tcp, _ = nc.(*net.TCPConn)
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.idleRead = c.readIdle
	c.x.init(c)
	return c
}

// setRead moves the read deadline to t. A deadline that is already close
// enough (later than t, by at most slack) stays: moving a timer costs more
// than reading a clock.
func (c *conn) setRead(t time.Time, slack time.Duration) {
	if d := c.readAt.Sub(t); d >= 0 && d <= slack {
		return
	}
	c.readAt = t
	_ = c.nc.SetReadDeadline(t)
}

// write sends p whole. The deadline is the one for a reader that takes nothing.
func (c *conn) write(p []byte) error {
	c.extendWrite()
	_, err := c.nc.Write(p)
	return err
}

// extendWrite keeps the write deadline between one and two write timeouts away.
func (c *conn) extendWrite() {
	timeout := c.x.set.WriteTimeout
	if timeout <= 0 {
		return
	}
	now := time.Now()
	if c.writeAt.Sub(now) >= timeout {
		return
	}
	c.writeAt = now.Add(2 * timeout)
	_ = c.nc.SetWriteDeadline(c.writeAt)
}

// writeTimedOut says whether the write deadline has passed.
func (c *conn) writeTimedOut() bool {
	return !c.writeAt.IsZero() && !time.Now().Before(c.writeAt)
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
// descriptor waits without a buffer: that is most of what an idle caller costs.
func (c *conn) fillIdle() error {
	if c.raw == nil {
		if c.in == nil {
			c.in = getBuffer(smallBuffer)
		}
		return c.fill()
	}
	c.idleErr = nil
	if err := c.raw.Read(c.idleRead); err != nil {
		return err
	}
	return c.idleErr
}

// readIdle is called when the descriptor may be readable, says whether it was.
func (c *conn) readIdle(fd uintptr) bool {
	if c.in == nil {
		c.in = getBuffer(smallBuffer)
		c.r, c.w = 0, 0
	}
	n, err := ignoringEINTR(int(fd), c.in[c.w:])
	switch {
	case n > 0:
		c.w += n
	case errors.Is(err, syscall.EAGAIN):
		c.dropBuffer()
		return false
	case err == nil:
		c.idleErr = io.EOF
	default:
		c.idleErr = os.NewSyscallError("read", err)
	}
	return true
}

func ignoringEINTR(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// dropBuffer gives an empty read buffer back.
func (c *conn) dropBuffer() {
	if c.in != nil && c.r == c.w {
		putBuffer(c.in)
		c.in, c.r, c.w = nil, 0, 0
	}
}

// compact moves the unused bytes to the front of the buffer.
func (c *conn) compact() {
	if c.r > 0 {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
}

// abort closes the connection so that the caller sees a reset, not an orderly end.
func (c *conn) abort() {
	if c.tcp != nil {
		_ = c.tcp.SetLinger(0)
	}
	_ = c.nc.Close()
}

// Bounds for reading on after an answer that came before the request's end,
// so that the answer is not destroyed by a reset (RFC 9112 section 9.6).
const (
	lingerBytes = 256 << 10
	lingerTime  = time.Second
)

// closeGently sends our end first, then reads what the caller still sends,
// within bounds, so that it can read our last answer.
func (c *conn) closeGently() {
	if hc, ok := c.nc.(interface{ CloseWrite() error }); ok && hc.CloseWrite() == nil {
		_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.nc, lingerBytes)
	}
	_ = c.nc.Close()
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
