package proxy

import (
	"bytes"
	"cmp"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/errorbody"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/slots"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// pingAfter is how long a client may be silent before it gets a ping. A vanished client would
// otherwise hold its streams until TCP notices.
const pingAfter = 30 * time.Second

// http2Conn is a client's HTTP/2 connection. Each stream becomes a conn, served like an HTTP/1.1
// connection.
type http2Conn struct {
	c             *conn
	wire          *http2.Conn // set before it is served
	prematureEnds *floodguard.PrematureEnds

	running   atomic.Int64 // streams
	used      atomic.Bool  // it has had a stream
	emptyFrom atomic.Int64 // instant since when there are no streams, if there are none
	share     streamShare

	mu      sync.Mutex // guards wire and streams
	streams []*conn    // each knows its place
}

// agreedOnHTTP2 reports whether the handshake chose HTTP/2.
func (c *conn) agreedOnHTTP2() bool {
	return c.client.TLS != nil && c.client.TLS.ConnectionState().NegotiatedProtocol == "h2" && c.beginHTTP2(c.server.settings.Load())
}

// sentPreface reports whether the client's first bytes begin HTTP/2.
func (c *conn) sentPreface(set *settings.Settings) bool {
	p := c.client.Peek()
	n := min(len(p), len(http2.Preface))
	return !c.begun && c.client.Stream == nil && n >= len("PRI * HTTP/2") && bytes.Equal(p[:n], []byte(http2.Preface)[:n]) && c.beginHTTP2(set)
}

func (c *conn) beginHTTP2(set *settings.Settings) bool {
	if !set.HTTP2 {
		return false
	}
	h := &http2Conn{c: c, prematureEnds: floodguard.NewPrematureEnds(c.server.premature)}
	c.client.Enter(downstream.PhaseBusy) // its preface is complete
	if t := &c.server.clients; !t.makeRoom(c.slot, t.costs.servingHTTP2(c.isSecure, false), slots.Connection, http2RoomWithin) {
		c.refuseHTTP2()
		return true
	}
	now := c.server.now() // it may have waited for room
	h.emptyFrom.Store(int64(now))
	c.http2.Store(h)
	c.beginProgress(now)
	if c.evicted.Load() { // before its preface was complete; what evicts it from now on ends h
		c.http2.Store(nil)
		c.refuseHTTP2()
	}
	return true
}

// serveHTTP2 handles an HTTP/2 connection until it ends.
func (c *conn) serveHTTP2() {
	h := c.http2.Load()
	if h == nil {
		return // there was no room for it
	}
	nc := c.unread(c.client.NC)
	_ = nc.SetDeadline(time.Time{})
	set := c.server.settings.Load()
	o := &http2.Options{
		Limits: http2.Limits{
			ReadAhead:     c.server.ahead,
			HeaderBytes:   headerListBytes(set.Limits),
			HeaderTimeout: set.ReadHeaderTimeout,
			IdleTimeout:   set.ClientIdleTimeout,
			PingAfter:     pingAfter,
			WriteTimeout:  set.WriteTimeout,
		},
		Streams:  c.server.clients.streams.ofOne(set.MaxConcurrentStreams),
		Workers:  &c.server.workers,
		Serve:    h.serveStream,
		Keep:     h.newStreamConn,
		TooLarge: c.server.refuseHeaders,
		Fault:    func(err error) { c.server.http2Fault(c.remote(), err) },
		Slowed:   func() { c.server.countRefusal(http1.RefusalTooManyFrames) },
		Writev:   h.writev(),
		Local:    c.client.Wire.LocalAddr(),
		Remote:   c.remote(),
	}
	wire := http2.NewConn(nc, o)
	h.mu.Lock()
	h.wire = wire
	h.mu.Unlock()
	if c.server.process.IsDraining() {
		h.goAway() // it began late; what its client sends at once is still served
	}
	wire.Run()
}

// writev returns what writes several parts at once to the client, or nil if each would take a call: over TLS.
func (h *http2Conn) writev() func(parts [][]byte) (int, error) {
	raw, ok := h.c.client.NC.(*rawsocket.Conn)
	if !ok {
		return nil
	}
	return raw.Writev
}

// goAway lets the streams finish and accepts no more; then the connection ends. h may be nil. It
// is safe for concurrent use.
func (h *http2Conn) goAway() {
	if h == nil {
		return
	}
	if wire := h.served(); wire != nil {
		wire.GoAway()
	}
}

// served returns the connection; nil before it is served.
func (h *http2Conn) served() *http2.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wire
}

// moved returns how many bytes of bodies the client has moved, in either direction.
func (h *http2Conn) moved() uint64 {
	if wire := h.served(); wire != nil {
		return wire.Moved()
	}
	return 0
}

// each calls f for every stream. h may be nil.
func (h *http2Conn) each(f func(*conn)) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.streams {
		f(c)
	}
}

// headerListBytes returns how many bytes the fields of a request may count, each with the 32 bytes that
// HTTP/2 adds (RFC 9113 section 6.5.2). Within that, the limits of HTTP/1.1 apply.
func headerListBytes(l http1.Limits) int {
	return cmp.Or(l.HeaderBytes, http1.DefaultHeaderBytes) + 32*cmp.Or(l.Headers, http1.DefaultHeaders)
}

// serveStream serves one request.
func (h *http2Conn) serveStream(stream *http2.Stream) {
	s := h.c.server
	if !s.clients.streams.beginStream(h) {
		s.countRefusal(http1.RefusalNoStreamSlot)
		stream.Reset(http2.RefusedStream) // there are so many that even a response would take too much memory
		return
	}
	defer s.clients.streams.endStream(h)
	h.count(1)
	defer h.count(-1)
	c := stream.Kept().(*streamConn)
	if !h.awaitSlot(c, stream) {
		h.refuseStream(stream)
		return
	}
	defer s.clients.streams.give(&c.slot)
	if !h.prematureEnds.Hold(stream) {
		return
	}
	began := s.now()
	h.begin(&c.conn, began)
	c.serve()
	h.end(&c.conn, stream)
	age, byClient := time.Duration(0), c.x.EndedByClient()
	if byClient {
		age = stream.LeftAt().Sub(s.process.Clock.At(began))
	}
	h.prematureEnds.Ended(age, byClient)
	if stream.ResponseComplete() {
		h.prematureEnds.RespondedWhole()
	}
}

// awaitSlot takes the slot of c for its stream. It reports false if there was none in time. Until then
// nobody reads the body.
func (h *http2Conn) awaitSlot(c *streamConn, stream *http2.Stream) bool {
	s := h.c.server
	if stream.HasBody() && s.clients.streams.full() {
		defer s.ahead.Backlog.Wait(int64(s.ahead.Window), func() bool { stream.Reset(http2.Cancel); return true })()
	}
	return s.clients.streamSlot(&c.slot)
}

// charge charges the connection what it takes once it has had a stream.
func (h *http2Conn) charge() {
	t := &h.c.server.clients
	t.slots.Charge(h.c.slot, t.costs.servingHTTP2(h.c.isSecure, true))
}

// count changes the number of streams by n, and records since when there are none.
func (h *http2Conn) count(n int64) {
	if !h.used.Load() && h.used.CompareAndSwap(false, true) {
		h.charge()
	}
	if h.running.Add(n) == 0 {
		now := h.c.server.now()
		h.emptyFrom.Store(int64(now))
		h.c.beginProgress(now)
	}
}

// streamConn is the conn of a stream, with the slot of the request that it serves.
type streamConn struct {
	conn
	slot     streamSlot
	progress slots.Progress // of the stream
}

// newStreamConn makes a conn for the stream.
func (h *http2Conn) newStreamConn(stream *http2.Stream) any {
	c := &streamConn{conn: conn{server: h.c.server, isSecure: h.c.isSecure, parent: h.c}, slot: streamSlot{h: h, stream: stream}}
	c.client.InitStream(&h.c.client, stream, &c.x)
	c.x.Init(&c.client, h.c.server.process)
	return c
}

// begin prepares c for the request of its stream.
func (h *http2Conn) begin(c *conn, now clock.Instant) {
	c.turnedAway, c.begun = false, false
	c.client.BeginStream()
	c.beginProgress(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	c.evicted.Store(false) // with mu, so that what evicts a stream does not reach the next request
	c.place = len(h.streams)
	h.streams = append(h.streams, c)
}

// end ends the conn's request. After a fault, or a tunnel, nothing of it is used again.
func (h *http2Conn) end(c *conn, stream *http2.Stream) {
	if c.mustReset || c.x.WasTunnel() {
		stream.Discard()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := len(h.streams) - 1
	h.streams[c.place] = h.streams[last]
	h.streams[c.place].place = c.place
	h.streams[last] = nil
	h.streams = h.streams[:last]
}

// refuseStream responds with 503. A client that does not read it would hold its memory, so it is written
// soon or not at all. A gRPC call is refused, so that its client repeats it, whatever the method.
func (h *http2Conn) refuseStream(stream *http2.Stream) {
	s, why := h.c.server, http1.RefusalNoStreamSlot
	s.countRefusal(why)
	if stream.IsGRPC() {
		stream.Reset(http2.RefusedStream)
		return
	}
	headers, body := s.unread(errorbody.Error{Status: why.Status(), Reason: why.String(), Text: why.Explain()})
	_ = stream.SetWriteDeadline(time.Now().Add(writeWithin))
	block := wire.AppendInt(wire.Block, wire.AppendInt(wire.Block, nil, "retry-after", 1), "content-length", int64(len(body)))
	block = wire.AppendLines(wire.Block, block, headers)
	if stream.WriteHeaders(why.Status(), block, len(body) == 0) == nil && len(body) > 0 {
		_ = stream.WriteBody(body, nil, true)
	}
	stream.Flush()
}

// refuseHeaders counts a request whose headers are too large, and returns the headers and the body of its
// response.
func (s *Server) refuseHeaders() ([]http1.Header, []byte) {
	why := http1.RefusalHeadersTooLarge
	s.countRefusal(why)
	return s.unread(errorbody.Error{Status: why.Status(), Reason: why.String(), Text: why.Explain()})
}

func (s *Server) countRefusal(why http1.Refusal) {
	if refused := s.settings.Load().Refused; refused != nil {
		refused(why)
	}
}

// prefixedConn is a connection of which some bytes were already read.
type prefixedConn struct {
	net.Conn
	prefix []byte
}

func (c *prefixedConn) Read(p []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.prefix)
	c.prefix = c.prefix[n:]
	return n, nil
}
