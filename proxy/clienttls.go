package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// callerTLS is what clients meet on TCP; nil: no TLS. Unix sockets stay plain,
// as nobody can listen in on them.
func (n *settings) prepareTLS() {
	if n.TLS == nil {
		return
	}
	n.clientTLS = n.TLS.Clone()
	n.clientTLS.NextProtos = clientProtocols
	if !n.http2 {
		n.clientTLS.NextProtos = clientProtocols[1:]
	}
}

// clientProtocols are offered to clients by ALPN, the best first.
var clientProtocols = []string{"h2", "http/1.1"}

// startTLS puts TLS on a client's connection where the settings want it.
func (c *conn) startTLS(n *settings) {
	if _, unix := rawsocket.Unwrap(c.wire).(*net.UnixConn); unix || n.clientTLS == nil {
		return
	}
	c.secure = tls.Server(c.unread(c.wire), n.clientTLS)
	c.nc, c.isSecure = c.secure, true
	c.tcp = nil // nothing moves past TLS inside the kernel
	c.parks = false
}

// handshake does the TLS handshake, where there is one; false: it failed.
func (c *conn) handshake() bool {
	if c.secure == nil {
		return true
	}
	c.idleFrom.Store(int64(c.server.now()))
	c.phase.Store(phaseIdle) // a drain that ends idle clients ends this one too
	_ = c.wire.SetDeadline(time.Now().Add(c.server.settings.Load().ReadHeaderTimeout))
	if c.server.closingIdle() {
		return false
	}
	err := c.secure.Handshake()
	c.phase.Store(phaseBusy)
	if err == nil {
		_ = c.wire.SetDeadline(time.Time{})
		return true
	}
	c.server.handshakeFailures.Add(1)
	c.server.settings.Load().Log.Debug("TLS handshake with a client failed", zap.Stringer("peer", c.wire.RemoteAddr()), zap.Error(err))
	c.rejectPlainHTTP(err)
	return false
}

// rejectPlainHTTP tells a client that spoke HTTP where TLS is wanted.
func (c *conn) rejectPlainHTTP(err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || record.Conn == nil || !looksLikeHTTP(record.RecordHeader[:]) {
		return
	}
	_ = c.wire.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.wire.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis port expects HTTPS.\n"))
}

// looksLikeHTTP says whether the first bytes are those of a common method.
func looksLikeHTTP(b []byte) bool {
	switch string(b) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PATCH", "DELET", "PRI *":
		return true
	}
	return false
}
