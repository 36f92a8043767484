package proxy

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/exchange"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/slots"
)

// connections is the set of connected clients. It is safe for concurrent use.
type connections struct {
	mu     sync.Mutex // guards served
	served map[*conn]struct{}

	count      atomic.Int64   // connected, parked or not
	ends       sync.WaitGroup // of the connected clients
	goroutines sync.WaitGroup // that serve the connections
	killed     atomic.Bool
}

// serve serves a connection that each and kill can reach, until forget.
func (cs *connections) serve(c *conn) {
	cs.mu.Lock()
	cs.served[c] = struct{}{}
	cs.mu.Unlock()
	if cs.killed.Load() {
		_ = c.client.Wire.Close() // kill may have missed it
	}
	c.serve()
}

// forget removes a connection that was served.
func (cs *connections) forget(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.served, c)
}

// each calls f for every connection that is served, and then for the streams on it.
func (cs *connections) each(f func(*conn)) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.served {
		f(c)
		c.http2.Load().each(f)
	}
}

// kill closes all connections, and those that come later.
func (cs *connections) kill() {
	cs.killed.Store(true)
	cs.each(func(c *conn) { _ = c.client.Wire.Close() })
}

// empty reports whether no client is connected.
func (cs *connections) empty() bool { return cs.count.Load() == 0 }

// conn is a client's HTTP/1.1 connection, or one stream of an HTTP/2 connection. One goroutine
// serves it. A second one, the pump, reads from it while a body is sent or a response is awaited,
// and stops reading when it ends.
type conn struct {
	client downstream.Conn
	server *Server
	x      exchange.Exchange

	isSecure           bool               // the client, or the connection of this stream, came over TLS
	countedLeaving     bool               // counted by beginLeaving
	handshaken         bool               // its TLS handshake was before it was parked
	used               atomic.Bool        // the client has sent something
	begun              bool               // the client has begun a request
	turnedAway         bool               // the last response was a 503 for want of a slot
	mustReset          bool               // it must end with a reset, so that the client cannot mistake it for an orderly end
	parks              bool               // it may be parked when idle
	handedToPoller     bool               // it was parked: this goroutine must not touch it any more
	expectsProxyHeader bool               // it begins with a header of the PROXY protocol that was not read yet
	proxyAddr          *net.TCPAddr       // the client's address in that header; nil: use the connection's
	peerSettings       *settings.Settings // the settings that peer was computed from

	idleEnd  clock.Instant // of the wait for the next request, kept while it is parked; zero: it is not idle
	idleFrom atomic.Int64  // instant; with phaseIdle and phaseHeaders
	evicted  atomic.Bool   // it must end because others need its slot
	slot     *slots.Slot   // its client slot; a stream has none
	parent   *conn         // the connection of this stream; nil: it is no stream
	place    int           // of this stream among those of http2Conn, guarded by its mu

	http2 atomic.Pointer[http2Conn] // set when the client turned out to speak HTTP/2
}

func newConn(s *Server, nc net.Conn, listen string) *conn {
	c := newPlainConn(s, nc, listen)
	n := s.settings.Load()
	if c.expectsProxyHeader = n.Announces(nc); !c.expectsProxyHeader {
		c.startTLS(n)
	}
	return c
}

// newPlainConn is like newConn for a connection known to be without TLS.
func newPlainConn(s *Server, nc net.Conn, listen string) *conn {
	c := &conn{server: s}
	unsent := 0
	if s.clients.slots.BoundsMemory() {
		unsent = unsentBytes
	}
	c.client.Init(nc, s.process.Clock, listen, unsent, &c.x)
	c.x.Init(&c.client, s.process)
	return c
}

// hasSlot makes slot that of the connection, whose progress is measured from now on.
func (c *conn) hasSlot(slot *slots.Slot) {
	c.slot = slot
	slot.Progress.Begin(0, c.server.process.Clock.Elapsed())
}

// unsentBytes bounds the kernel's send buffer for a client that reads nothing, if memory is
// bounded. By default the kernel keeps megabytes, which count as the container's.
const unsentBytes = 64 << 10
