package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// startTLS puts TLS on the connection if the settings ask for it. Unix sockets stay plain.
func (c *conn) startTLS(n *settings.Settings) {
	if _, unix := rawsocket.Unwrap(c.client.Wire).(*net.UnixConn); unix || n.ClientTLS == nil {
		return
	}
	c.client.TLS = tls.Server(c.unread(c.client.Wire), n.ClientTLS)
	c.client.NC, c.isSecure = c.client.TLS, true
	c.client.TCP = nil // the kernel cannot splice TLS
	c.parks = false
}

// handshake performs the TLS handshake, if there is one. It reports false if the handshake failed.
func (c *conn) handshake() bool {
	if c.client.TLS == nil {
		return true
	}
	c.idleFrom.Store(int64(c.server.process.Clock.Now()))
	c.client.Phase.Store(downstream.PhaseIdle) // so that a drain that ends idle clients ends this one too
	_ = c.client.Wire.SetDeadline(time.Now().Add(c.server.settings.Load().ReadHeaderTimeout))
	if c.server.drain.closingIdle() {
		return false
	}
	err := c.client.TLS.Handshake()
	c.client.Phase.Store(downstream.PhaseBusy)
	if err == nil {
		_ = c.client.Wire.SetDeadline(time.Time{})
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
	_, _ = c.client.Wire.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis port expects HTTPS.\n"))
}

// looksLikeHTTP reports whether the first bytes are those of a common method.
func looksLikeHTTP(b []byte) bool {
	switch string(b) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PATCH", "DELET", "PRI *":
		return true
	}
	return false
}
