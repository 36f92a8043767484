package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/errorbody"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/proxyproto"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// startTLS puts TLS on the connection if the settings ask for it. Unix sockets stay plain.
func (c *conn) startTLS(n *settings.Settings) {
	if _, unix := rawsocket.Unwrap(c.client.Wire).(*net.UnixConn); unix || n.ClientTLS == nil {
		return
	}
	c.client.UseTLS(tls.Server(c.unread(c.client.Wire), n.ClientTLS))
	c.isSecure = true
}

// handshake performs the TLS handshake, if there is one. It reports false if the handshake failed.
func (c *conn) handshake() bool {
	if c.client.TLS == nil || c.handshaken {
		return true
	}
	c.idleFrom.Store(int64(c.server.now()))
	c.client.Enter(downstream.PhaseIdle) // so that a drain that ends idle clients ends this one too
	_ = c.client.Wire.SetDeadline(time.Now().Add(c.server.settings.Load().ReadHeaderTimeout))
	if c.server.drain.closingIdle() {
		return false
	}
	err := c.client.TLS.Handshake()
	c.client.Enter(downstream.PhaseBusy)
	if err == nil {
		_ = c.client.Wire.SetDeadline(time.Time{})
		c.server.drain.clientAccepted()
		return true
	}
	c.server.handshakeFailures.Add(1)
	if !errors.Is(err, io.EOF) { // a probe of a load balancer may only connect
		c.server.clientFault("TLS handshake with a client failed", zap.Stringer("peer", c.client.Wire.RemoteAddr()), zap.Error(err))
	}
	c.rejectPlainHTTP(err)
	return false
}

// rejectPlainHTTP responds with 400 to a client that spoke plain HTTP where TLS is required.
func (c *conn) rejectPlainHTTP(err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || record.Conn == nil || !looksLikeHTTP(record.RecordHeader[:]) {
		return
	}
	_ = c.client.Wire.SetWriteDeadline(time.Now().Add(time.Second))
	headers, body := c.server.unread(errorbody.Error{Status: 400, Reason: "https_expected", Text: "this port expects HTTPS"})
	if body == nil {
		headers, body = []http1.Header{http1.NewHeader("Content-Type", "text/plain")}, []byte("This port expects HTTPS.\n")
	}
	headers = append(headers, http1.NewHeader("Date", string(clock.Date(time.Now()))), http1.NewHeader("Connection", "close"))
	_, _ = c.client.Wire.Write(appendOwn(nil, 400, headers, body))
}

// looksLikeHTTP reports whether the first bytes are those of a common method.
func looksLikeHTTP(b []byte) bool {
	switch string(b) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PATCH", "DELET", "PRI *":
		return true
	}
	return false
}

// announced reads the PROXY protocol header with which the connection must begin. It reports false
// if there is no valid one. The connection is then closed without a response, because the protocol
// after the header is unknown.
func (c *conn) announced() bool {
	set := c.server.settings.Load()
	c.client.Enter(downstream.PhaseIdle) // so that a drain that ends idle clients ends this one too
	c.client.SetRead(c.server.now().Add(set.ReadHeaderTimeout), 0)
	if c.server.drain.closingIdle() {
		return false
	}
	why := c.readProxyHeader()
	c.client.Enter(downstream.PhaseBusy)
	if why == proxyproto.None {
		c.expectsProxyHeader = false
		c.client.ClearRead()
		c.startTLS(set)
		return true
	}
	c.mustReset = true // no more bytes are read
	_ = c.client.Wire.Close()
	if c.client.Buffered() > 0 || why == proxyproto.TimedOut && !c.server.drain.closingIdle() {
		c.server.headerFailures[why].Add(1)
		c.server.clientFault("a connection did not begin with a PROXY protocol header and was closed", zap.Stringer("peer", c.client.Wire.RemoteAddr()), zap.Error(why))
	}
	return false
}

// readProxyHeader reads until the header is complete. The bytes after it stay in the buffer.
func (c *conn) readProxyHeader() proxyproto.Failure {
	c.client.Begin(proxyproto.MaxBytes)
	for {
		h, n, why := proxyproto.Parse(c.client.Peek())
		switch {
		case why != proxyproto.None:
			return why
		case n > 0:
			if h.Source.IsValid() {
				c.proxyAddr = net.TCPAddrFromAddrPort(h.Source)
			}
			c.client.Discard(n)
			c.client.Compact()
			c.client.DropBuffer()
			return proxyproto.None
		}
		if err := c.client.Fill(); rawsocket.IsTimeout(err) {
			return proxyproto.TimedOut
		} else if err != nil {
			return proxyproto.Truncated
		}
	}
}

// remote returns the client's address: the one in the PROXY protocol header, or the connection's.
func (c *conn) remote() net.Addr {
	if c.proxyAddr != nil {
		return c.proxyAddr
	}
	return c.client.NC.RemoteAddr()
}

// unread returns nc with the bytes that were already read put back in front.
func (c *conn) unread(nc net.Conn) net.Conn {
	if n := c.client.Buffered(); n > 0 {
		nc = &prefixedConn{Conn: nc, prefix: bytes.Clone(c.client.Peek())}
		c.client.Discard(n)
	}
	c.client.DropBuffer()
	return nc
}
