package proxy

import (
	"bytes"
	"context"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/bridge"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	_ "github.com/retryproxy/retryproxy/proxy/internal/xconnect" // WebSocket by extended CONNECT
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// connectionWindow is HTTP/2's window of one connection, in bytes. It is never used up: one upload
// that its upstream does not read would hold it for all other requests of the connection. What waits
// to be read is bounded by bridge.ReadAhead.
const connectionWindow = 1 << 30

// pingAfter is how long a client may be silent before it gets a ping. A vanished client would
// otherwise hold its streams until TCP notices.
const pingAfter = 30 * time.Second

// http2Conn is a client's HTTP/2 connection. The framing is net/http's. Each connection has a
// server of its own, so that a drain or a reload can act on it alone. Each stream becomes a conn,
// served like an HTTP/1.1 connection.
type http2Conn struct {
	c             *conn
	server        http.Server
	watch         *floodguard.FrameWatch
	prematureEnds *floodguard.PrematureEnds
	canGoAway     atomic.Bool // the server can send GOAWAY
	once          sync.Once   // for goAway
	away          sync.WaitGroup

	running   atomic.Int64 // streams
	used      atomic.Bool  // it has had a stream
	emptyFrom atomic.Int64 // instant since when there are no streams, if there are none
	share     streamShare

	mu       sync.Mutex // guards all fields below
	over     bool
	streams  map[*conn]struct{}
	handlers sync.WaitGroup // of streams
}

// agreedOnHTTP2 reports whether the handshake chose HTTP/2.
func (c *conn) agreedOnHTTP2() bool {
	return c.client.TLS != nil && c.client.TLS.ConnectionState().NegotiatedProtocol == "h2" && c.beginHTTP2(c.server.settings.Load())
}

// sentPreface reports whether the client's first bytes begin HTTP/2.
func (c *conn) sentPreface(set *settings.Settings) bool {
	p := c.client.Peek()
	n := min(len(p), len(floodguard.Preface))
	return !c.begun && c.client.Stream == nil && n >= len("PRI * HTTP/2") && bytes.Equal(p[:n], []byte(floodguard.Preface)[:n]) && c.beginHTTP2(set)
}

func (c *conn) beginHTTP2(set *settings.Settings) bool {
	if !set.HTTP2 {
		return false
	}
	h := &http2Conn{c: c, streams: map[*conn]struct{}{}, prematureEnds: floodguard.NewPrematureEnds(c.server.premature)}
	h.emptyFrom.Store(int64(c.server.process.Clock.Now()))
	if t := &c.server.clients; !t.makeRoom(c.slot, t.costs.servingHTTP2(c.isSecure, false), http2RoomWithin) {
		c.refuseHTTP2()
		return true
	}
	h.server = http.Server{
		Handler:                      http.HandlerFunc(h.serveStream),
		DisableGeneralOptionsHandler: true,
		MaxHeaderBytes:               set.Limits.HeaderBytes,
		ReadHeaderTimeout:            set.ReadHeaderTimeout, // for the preface only; net/http clears it after that
		IdleTimeout:                  set.ClientIdleTimeout,
		Protocols:                    new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          c.server.clients.streams.ofOne(set.MaxConcurrentStreams),
			MaxReadFrameSize:              floodguard.FrameSize,
			MaxReceiveBufferPerStream:     c.server.ahead.Window,
			MaxReceiveBufferPerConnection: connectionWindow,
			SendPingTimeout:               pingAfter,
			WriteByteTimeout:              set.WriteTimeout,
		},
		ErrorLog: log.New(http2Log{c.server}, "", 0),
	}
	h.server.Protocols.SetUnencryptedHTTP2(true) // TLS, if any, ends below the frame watcher
	c.http2.Store(h)
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
	h.watch = floodguard.Watch(nc, set.ReadHeaderTimeout, func() {
		if set.Refused != nil {
			set.Refused(http1.RefusalTooManyFrames)
		}
	}, h.goAway)
	l := &singleConnListener{conn: h.watch, ended: make(chan struct{}), closed: make(chan struct{})}
	h.server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateIdle:
			h.canGoAway.Store(true)
		case http.StateClosed:
			l.end()
		}
	}
	_ = h.server.Serve(l)
	<-l.ended // during a drain, Serve returns while the connection continues
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	h.handlers.Wait()
	h.away.Wait()
}

// goAway lets the streams finish and accepts no more; then the connection ends. h may be nil. It
// is safe for concurrent use.
func (h *http2Conn) goAway() {
	if h == nil || !h.canGoAway.Load() {
		return
	}
	h.once.Do(func() {
		h.away.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // the end of the connection is awaited elsewhere
			_ = h.server.Shutdown(ctx)
		})
	})
}

// each calls f for every stream. h may be nil.
func (h *http2Conn) each(f func(*conn)) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.streams {
		f(c)
	}
}

// serveStream serves one request.
func (h *http2Conn) serveStream(w http.ResponseWriter, r *http.Request) {
	s := h.c.server
	if s.process.Draining.Load() {
		h.goAway() // the connection began late; this request is still served
	}
	if !s.clients.streams.beginStream(h) {
		s.countRefusal(http1.RefusalNoStreamSlot)
		panic(http.ErrAbortHandler) // there are so many that even a response would take too much memory
	}
	defer s.clients.streams.endStream(h)
	h.count(1)
	defer h.count(-1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	slot := h.awaitSlot(w, r, cancel)
	if slot == nil {
		h.refuseStream(w, r)
		return
	}
	defer s.clients.streams.give(slot)
	r = r.WithContext(ctx)
	stream := bridge.NewClientStream(h.watch.Crediting(w), r, h.c.client.Wire.LocalAddr(), h.c.remote(), s.ahead)
	if c := h.begin(stream); c != nil {
		if h.prematureEnds.Hold(r.Context(), stream) {
			began := time.Now()
			c.serve()
			h.prematureEnds.Ended(time.Since(began), c.x.EndedByClient())
		}
		h.end(c)
	}
	if !stream.Finish() {
		panic(http.ErrAbortHandler) // net/http's way to reset a stream
	}
	h.watch.Credit(1)
	h.prematureEnds.RespondedWhole()
}

// awaitSlot takes a slot for a stream; cancel ends the stream. It returns nil if there was none in
// time. Until then nobody reads the body.
func (h *http2Conn) awaitSlot(w http.ResponseWriter, r *http.Request, cancel func()) *streamSlot {
	s := h.c.server
	if r.ContentLength != 0 && s.clients.streams.full() {
		defer s.ahead.Backlog.Wait(int64(s.ahead.Window), func() bool { cancel(); return true })()
	}
	return s.clients.streamSlot(w, r, h, cancel)
}

// count changes the number of streams by n, and records since when there are none.
func (h *http2Conn) count(n int64) {
	if !h.used.Load() && h.used.CompareAndSwap(false, true) {
		t := &h.c.server.clients
		t.slots.Charge(h.c.slot, t.costs.servingHTTP2(h.c.isSecure, true))
	}
	if h.running.Add(n) == 0 {
		h.emptyFrom.Store(int64(h.c.server.process.Clock.Now()))
	}
}

// begin makes a conn for the stream. It returns nil if the connection is ending.
func (h *http2Conn) begin(stream *bridge.ClientStream) *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return nil
	}
	c := newStreamConn(h.c, stream)
	h.streams[c] = struct{}{}
	h.handlers.Add(1)
	return c
}

func (h *http2Conn) end(c *conn) {
	h.mu.Lock()
	delete(h.streams, c)
	h.mu.Unlock()
	h.handlers.Done()
}

func newStreamConn(parent *conn, stream *bridge.ClientStream) *conn {
	c := &conn{server: parent.server, isSecure: parent.isSecure, parent: parent}
	c.client.InitStream(&parent.client, stream, &c.x)
	c.x.Init(&c.client, &parent.server.process)
	return c
}

// refuseStream responds with 503 and no body: a client that does not read a body would hold its
// memory.
func (h *http2Conn) refuseStream(w http.ResponseWriter, r *http.Request) {
	h.c.server.countRefusal(http1.RefusalNoStreamSlot)
	headers := w.Header()
	headers["Retry-After"] = []string{"1"}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		headers["Content-Type"], headers["Grpc-Status"] = []string{"application/grpc"}, []string{strconv.Itoa(int(policy.GRPCUnavailable))}
		headers["Grpc-Message"] = []string{http1.RefusalNoStreamSlot.String()}
		return
	}
	headers["Content-Length"] = []string{"0"}
	w.WriteHeader(http1.RefusalNoStreamSlot.Status())
}

func (s *Server) countRefusal(why http1.Refusal) {
	if refused := s.settings.Load().Refused; refused != nil {
		refused(why)
	}
}

// singleConnListener is a listener with one connection.
type singleConnListener struct {
	conn     net.Conn
	accepted bool
	ended    chan struct{} // closed when the connection is
	closed   chan struct{} // closed when no more are accepted
	onceA    sync.Once
	onceB    sync.Once
}

func (l *singleConnListener) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.conn, nil
	}
	select {
	case <-l.ended:
	case <-l.closed:
	}
	return nil, net.ErrClosed
}

func (l *singleConnListener) end() { l.onceA.Do(func() { close(l.ended) }) }

func (l *singleConnListener) Close() error {
	l.onceB.Do(func() { close(l.closed) })
	return nil
}

func (l *singleConnListener) Addr() net.Addr { return l.conn.LocalAddr() }

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
