// Package downstream is the connection of a client: its read buffer with the headers of the request
// that is served, its deadlines, waits without a buffer, and the ways to end it. What a request means
// and what is responded is known elsewhere.
package downstream

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
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

// Conn is the connection of a client, or one stream of an HTTP/2 connection. One goroutine serves it.
// A second one, the pump, reads from it while a body is sent or a response is awaited, and stops
// reading when it ends. Methods are for the goroutine that reads, unless they say otherwise.
type Conn struct {
	clock    *clock.Clock
	NC       net.Conn
	Wire     net.Conn        // below TLS, otherwise NC itself
	Stream   *http2.Stream   // nil unless this is one stream of an HTTP/2 connection
	TLS      *tls.Conn       // nil without TLS, and for a stream
	TCP      *net.TCPConn    // nil unless plain TCP
	Raw      syscall.RawConn // of Wire; nil without a descriptor
	Listener string          // the listener's name, for routes
	Buffers  buffer.Cache    // kept between requests
	peer     forward.Peer    // the client's address and trust

	in       buffer.Spanned[SpanHolder] // read buffer, none while idle; in[r:w] is read and not yet used
	r, w     int
	readSize int           // size of the buffer for the next request
	request  http1.Request // parsed from in
	spans    SpanHolder

	readAt       clock.Instant // read deadline now set
	writeAt      clock.Instant // write deadline now set
	writeTimeout time.Duration // 0: none
	phase        atomic.Int32
	turnedAway   atomic.Bool  // the request's body is not read any more, because others need the slot
	writing      atomic.Int64 // instant when the write to the client began; zero: none is in flight

	idleRead func(fd uintptr) bool // kept so that an idle read does not allocate
	nowRead  func(fd uintptr) bool // likewise
	once     readOnce
}

// SpanHolder holds spans of the read buffer: the request that is being served.
type SpanHolder interface {
	buffer.Spans
	// Compact moves what it keeps to as little memory as possible, for a wait that many requests
	// share.
	Compact()
}

// WakeQueued ends a wait of the connection's request in a queue.
func (c *Conn) WakeQueued() { c.Wake(PhaseBackoff) }

// Wake ends a wait of c through its deadline, if c waits in that phase.
func (c *Conn) Wake(phase int32) {
	if c.phase.Load() == phase {
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

// Init makes c the connection nc, which is not known to be TLS. spans holds spans of the read buffer.
// If unsent is above 0, it bounds the kernel's send buffer, in bytes, for a client that reads nothing.
func (c *Conn) Init(nc net.Conn, clk *clock.Clock, listen string, unsent int, spans SpanHolder) {
	c.clock, c.Listener, c.readSize, c.spans = clk, listen, buffer.Small, spans
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
func (c *Conn) InitStream(parent *Conn, stream *http2.Stream, spans SpanHolder) {
	c.clock, c.NC, c.Wire, c.Stream, c.Listener, c.spans = parent.clock, stream, stream, stream, parent.Listener, spans
}

// BeginStream prepares c for another request, whose deadlines are not set.
func (c *Conn) BeginStream() {
	c.ForgetDeadlines()
	c.turnedAway.Store(false)
	c.EndWrite()
	c.Enter(PhaseBusy)
}

// Identify sets who the client is, as the settings see it.
func (c *Conn) Identify(peer forward.Peer) { c.peer = peer }

// Peer returns the client's address and trust.
func (c *Conn) Peer() *forward.Peer { return &c.peer }

// BeginRequest prepares for writing the response of the next request.
func (c *Conn) BeginRequest(writeTimeout time.Duration) { c.writeTimeout = writeTimeout }

// Enter notes the phase of the goroutine that serves c.
func (c *Conn) Enter(phase int32) { c.phase.Store(phase) }

// Phase returns the phase of the goroutine that serves c. It is safe for concurrent use.
func (c *Conn) Phase() int32 { return c.phase.Load() }

// CompactSpans makes what holds spans of the read buffer take as little memory as possible.
func (c *Conn) CompactSpans() { c.spans.Compact() }

// Spans returns what holds spans of the read buffer.
func (c *Conn) Spans() SpanHolder { return c.spans }

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
