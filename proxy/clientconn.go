package proxy

import (
	"net"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/exchange"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// conn is a client's HTTP/1.1 connection, or one stream of an HTTP/2 connection. One goroutine
// serves it. A second one (the pump) reads from it while a body is sent or the upstream is
// awaited, and hands reading back when it ends.
type conn struct {
	client downstream.Conn
	server *Server
	x      exchange.Exchange

	isSecure           bool               // the client, or the connection of this stream, came over TLS
	countedLeaving     bool               // see leaves
	used               bool               // it has sent something
	begun              bool               // it has begun a request
	mustReset          bool               // it ends such that the client cannot take it for an orderly end
	parks              bool               // it may be parked when idle
	handedToPoller     bool               // it was parked: this goroutine's part is done
	expectsProxyHeader bool               // it begins with a header of the PROXY protocol, not yet read
	proxyAddr          *net.TCPAddr       // who the client is, by that header; nil: who the connection says
	peerSettings       *settings.Settings // the version that peer was judged by

	idleEnd  clock.Instant // of the wait that was begun before it was parked; zero: none was
	idleFrom atomic.Int64  // instant; with phaseIdle and phaseHeaders
	evicted  atomic.Bool   // it is to end, as others need its slot
	cost     int64         // what it is charged for, of the memory for clients

	http2 atomic.Pointer[http2Conn] // set once the client turned out to speak HTTP/2
}

func newConn(s *Server, nc net.Conn, listen string) *conn {
	c := newPlainConn(s, nc, listen)
	n := s.settings.Load()
	if c.expectsProxyHeader = n.Announces(nc); !c.expectsProxyHeader {
		c.startTLS(n)
	}
	return c
}

// newPlainConn is newConn for a connection known to be without TLS.
func newPlainConn(s *Server, nc net.Conn, listen string) *conn {
	c := &conn{server: s}
	unsent := 0
	if s.clients.slots.memory > 0 {
		unsent = unsentBytes
	}
	c.client.Init(nc, &s.process.Clock, listen, unsent)
	c.x.Init(&c.client, &s.process)
	return c
}

// unsentBytes is what the kernel keeps for a client that takes nothing, if memory is bounded.
// Left alone the kernel keeps megabytes, which count as the container's.
const unsentBytes = 64 << 10
