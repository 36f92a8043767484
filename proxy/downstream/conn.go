// Package downstream handles the connections of clients as bytes: the read buffer, deadlines,
// waits without a buffer, and the ways to end a connection. It does not parse requests; package
// proxy reads requests from a Conn and responds on it.
package downstream

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/bridge"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// Past is a deadline that ends any read or write at once.
var Past = time.Unix(1, 0)

// The phases of a connection's goroutine, for goroutines that want to wake it.
const (
	PhaseBusy int32 = iota
	PhaseIdle       // waiting for a request's first byte
	PhaseBackoff
	PhaseHeaders // waiting for the rest of request headers
)

// PollEvery bounds the delay of noticing that a client left while reading cannot show it.
const PollEvery = 100 * time.Millisecond

// Conn is the connection of a client, or one stream of an HTTP/2 connection, as bytes. It has the
// read buffer, the deadlines and the ways to end it. Of requests it knows only the buffer that
// holds their headers. One goroutine serves it. A second one, the pump, reads from it while a body
// is sent or a response is awaited, and stops reading when it ends.
type Conn struct {
	clock    *clock.Clock
	NC       net.Conn
	Wire     net.Conn             // below TLS, otherwise NC itself
	Stream   *bridge.ClientStream // nil unless this is one stream of an HTTP/2 connection
	TLS      *tls.Conn            // nil without TLS, and for a stream
	TCP      *net.TCPConn         // nil unless plain TCP
	Raw      syscall.RawConn      // of Wire; nil without a descriptor
	Listener string               // the listener's name, for routes
	Peer     forward.Peer         // the client's address and trust

	In      []byte // read buffer, nil while idle; In[R:W] is read and not yet used
	R, W    int
	Request http1.Request // parsed from In
	Spans   spanHolder

	ReadAt       clock.Instant // read deadline now set
	WriteAt      clock.Instant // write deadline now set
	WriteTimeout time.Duration // 0: none
	Phase        atomic.Int32
	turnedAway   atomic.Bool  // the request's body is not read any more, because others need the slot
	Writing      atomic.Int64 // instant when the write to the client began; zero: none is in flight

	idleRead func(fd uintptr) bool // kept so that an idle read does not allocate
	nowRead  func(fd uintptr) bool // likewise
	once     readOnce

	ReadSize int          // size of the buffer for the next request
	Buffers  buffer.Cache // kept between requests
}

// spanHolder holds spans of the read buffer: the request that is being served.
type spanHolder interface {
	// DetachRequest clears every span of the client's request.
	DetachRequest()
	// CheckDetached panics if a span points into b. It has an effect only in builds that poison.
	CheckDetached(b []byte)
	// Compact moves what it keeps to as little memory as possible, for a wait that many requests
	// share.
	Compact()
}

// WakeQueued ends a wait of the connection's request in a queue.
func (c *Conn) WakeQueued() { c.Wake(PhaseBackoff) }

// Wake ends a wait of c through its deadline, if c waits in that phase.
func (c *Conn) Wake(phase int32) {
	if c.Phase.Load() == phase {
		_ = c.Wire.SetReadDeadline(Past) // NC may be replaced by TLS at this moment
	}
}

// TurnAway ends the wait for the rest of a request body, because others need the client's slot. It is
// safe for concurrent use.
func (c *Conn) TurnAway() {
	c.turnedAway.Store(true)
	_ = c.Wire.SetReadDeadline(Past)
}

// IsTurnedAway reports whether TurnAway was called during the current body.
func (c *Conn) IsTurnedAway() bool { return c.turnedAway.Load() }

// BeginBody forgets a TurnAway that came after the end of an earlier body.
func (c *Conn) BeginBody() { c.turnedAway.Store(false) }

// Init makes c the connection nc, which is not known to be TLS. If unsent is above 0, it bounds
// the kernel's send buffer, in bytes, for a client that reads nothing.
func (c *Conn) Init(nc net.Conn, clk *clock.Clock, listen string, unsent int) {
	c.clock, c.Listener, c.ReadSize = clk, listen, buffer.Small
	c.TCP, _ = nc.(*net.TCPConn)
	c.Wire = rawsocket.Wrap(nc)
	c.NC = c.Wire
	if s, ok := c.Wire.(*rawsocket.Conn); ok {
		c.Raw, _ = s.SyscallConn()
	}
	if unsent > 0 && c.TCP != nil && c.Raw != nil {
		rawsocket.BoundUnsent(c.Raw, unsent)
	}
	c.idleRead, c.nowRead = c.readIdle, c.once.read
}

// UseTLS makes c read and write through t, whose bytes are those of Wire.
func (c *Conn) UseTLS(t *tls.Conn) {
	c.TLS, c.NC = t, t
	c.TCP = nil // the kernel cannot splice TLS
}

// InitStream makes c one stream of parent, an HTTP/2 connection.
func (c *Conn) InitStream(parent *Conn, stream *bridge.ClientStream) {
	c.clock, c.NC, c.Wire, c.Stream, c.Listener = parent.clock, stream, stream, stream, parent.Listener
}

// SetRead moves the read deadline to t, or at most slack later. So the deadline rarely moves:
// moving a timer costs more than reading a clock.
func (c *Conn) SetRead(t clock.Instant, slack time.Duration) {
	if d := c.ReadAt.Sub(t); d >= 0 && d <= slack {
		return
	}
	c.ReadAt = t.Add(slack)
	_ = c.NC.SetReadDeadline(c.clock.At(c.ReadAt))
}

// Write sends all of p, within the deadline for a client that reads nothing.
func (c *Conn) Write(p []byte, now clock.Instant) error {
	c.ExtendWrite(now)
	c.Writing.Store(int64(now))
	_, err := c.NC.Write(p)
	c.Writing.Store(0)
	return err
}

// WriteBoth is like Write for p followed by q.
func (c *Conn) WriteBoth(p, q []byte, now clock.Instant) error {
	c.ExtendWrite(now)
	c.Writing.Store(int64(now))
	_, err := rawsocket.WriteBoth(c.NC, p, q)
	c.Writing.Store(0)
	return err
}

// ExtendWrite keeps the write deadline between one and two write timeouts away.
func (c *Conn) ExtendWrite(now clock.Instant) {
	timeout := c.WriteTimeout
	if timeout <= 0 {
		return
	}
	if c.WriteAt.Sub(now) >= timeout {
		return
	}
	c.WriteAt = now.Add(2 * timeout)
	_ = c.NC.SetWriteDeadline(c.clock.At(c.WriteAt))
}

// WriteTimedOut reports whether the write deadline has passed.
func (c *Conn) WriteTimedOut() bool {
	return !c.WriteAt.IsZero() && !c.clock.Now().Before(c.WriteAt)
}

// Fill reads once into the free end of the buffer.
func (c *Conn) Fill() error {
	n, err := c.NC.Read(c.In[c.W:])
	c.W += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// FillIdle waits for the first bytes of a request. A connection with a descriptor waits without a
// buffer, which is most of the cost of an idle client.
func (c *Conn) FillIdle() error {
	if c.Raw == nil || c.TLS != nil {
		c.Buffers.Release()
		if c.In == nil {
			c.In = buffer.Get(buffer.Small)
		}
		return c.Fill()
	}
	c.once.err = nil
	if err := c.Raw.Read(c.idleRead); err != nil {
		c.ReleaseIdleBuffers() // a fault may have ended the wait before readIdle was called
		return err
	}
	return c.once.err
}

// readIdle is called when the descriptor may be readable, and reports whether it was.
func (c *Conn) readIdle(fd uintptr) bool {
	if c.In == nil {
		c.In = buffer.Get(c.ReadSize)
		c.R, c.W = 0, 0
	}
	n, err := rawsocket.TryRead(fd, c.In[c.W:])
	c.W += n
	switch {
	case err == syscall.EAGAIN:
		c.ReleaseIdleBuffers()
		return false
	case err != nil:
		c.once.err = os.NewSyscallError("read", err)
	case n == 0:
		c.once.err = io.EOF
	}
	return true
}

// ReadNow reads once without waiting. It returns 0 and no error if nothing is there. It does not
// work under TLS.
func (c *Conn) ReadNow(p []byte) (int, error) {
	c.once.p, c.once.n, c.once.err = p, 0, nil
	err := c.Raw.Read(c.nowRead)
	c.once.p = nil
	switch {
	case rawsocket.IsTimeout(err) || err == nil && c.once.err == syscall.EAGAIN:
		return 0, nil
	case err == nil && c.once.err == nil && c.once.n == 0:
		return 0, io.EOF
	case err != nil:
		return 0, err
	case c.once.err != nil:
		return 0, c.once.err
	}
	return c.once.n, nil
}

// HasUnread reports whether bytes of the client wait in its socket. It returns false if that cannot be
// known.
func (c *Conn) HasUnread() (has bool) {
	if c.Raw == nil {
		return false
	}
	var b [1]byte
	_ = c.Raw.Control(func(fd uintptr) {
		n, _ := rawsocket.TryPeek(fd, b[:])
		has = n > 0
	})
	return has
}

// readOnce is the state of one read without waiting.
type readOnce struct {
	p   []byte
	n   int
	err error
}

func (r *readOnce) read(fd uintptr) bool {
	r.n, r.err = rawsocket.TryRead(fd, r.p)
	return true
}

// SizeNextRead sets the size of the buffer for the next request from this one. Clients that send
// small bodies send more of them, and headers and body then arrive in one read.
func (c *Conn) SizeNextRead(f http1.Framing) {
	c.ReadSize = buffer.Small
	if f.Kind == http1.BodyLength && f.Length <= buffer.Wide {
		c.ReadSize = min(c.R+int(f.Length), buffer.Wide)
	}
}

// ReleaseIdleBuffers returns all empty buffers, because the wait may be long.
func (c *Conn) ReleaseIdleBuffers() {
	c.DropBuffer()
	c.Buffers.Release()
}

// DropBuffer returns the read buffer to its pool if it is empty.
func (c *Conn) DropBuffer() {
	if c.In != nil && c.R == c.W {
		c.PutIn()
	}
}

// Compact moves the unused bytes to the front of the buffer.
func (c *Conn) Compact() {
	switch {
	case c.R == c.W:
		c.R, c.W = 0, 0
	case c.R > 0:
		c.W = copy(c.In, c.In[c.R:c.W])
		c.R = 0
	}
}

// Abort closes the connection so that the client sees a reset instead of an orderly end. TLS sends
// no close_notify.
func (c *Conn) Abort() {
	if tcp, ok := rawsocket.Unwrap(c.Wire).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Wire.Close()
}

// lingerBytes bounds how much is read after a response that came before the request's end. Reading on
// keeps a reset from destroying the response (RFC 9112 section 9.6).
const lingerBytes = 256 << 10

// CloseGently half-closes the connection, then reads what the client still sends, within bounds and
// for at most that long, so that the client can read the last response.
func (c *Conn) CloseGently(within time.Duration) {
	if hc, ok := c.NC.(interface{ CloseWrite() error }); ok && hc.CloseWrite() == nil {
		_ = c.NC.SetReadDeadline(time.Now().Add(within))
		_, _ = io.CopyN(io.Discard, c.NC, lingerBytes)
	}
	_ = c.NC.Close()
}

// PutIn returns the read buffer to its pool between requests.
func (c *Conn) PutIn() {
	c.Spans.DetachRequest()
	used := c.In
	c.In, c.R, c.W = nil, 0, 0
	c.Spans.CheckDetached(used)
	buffer.Put(used)
}

// ReplaceIn makes b the read buffer. Nothing may point into the current one.
func (c *Conn) ReplaceIn(b []byte) {
	used := c.In
	c.In = b
	c.Spans.CheckDetached(used)
	buffer.Put(used)
}

// GrowIn doubles the read buffer while headers are read. The headers are then parsed anew.
func (c *Conn) GrowIn() {
	c.Spans.DetachRequest()
	b := buffer.Grow(c.In[:c.W], c.W)
	c.In = b[:cap(b)]
}
