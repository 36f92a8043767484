package bridge

import (
	"crypto/rand"
	"encoding/base64"
	"net"
	"net/http"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// protocolHeader is the key under which net/http stores the pseudo-header of extended CONNECT.
const protocolHeader = ":protocol"

// opensWebSocket reports whether r is an extended CONNECT for a WebSocket (RFC 8441 section 4).
// Other protocols stay CONNECT and are refused.
func opensWebSocket(r *http.Request) bool {
	p := r.Header[protocolHeader]
	return r.Method == http.MethodConnect && len(p) == 1 && p[0] == "websocket"
}

// appendHandshake appends the header section of r as the equivalent HTTP/1.1 handshake (RFC 8441
// section 5, RFC 6455 section 4.1). It reports false like appendRequest.
func appendHandshake(dst []byte, r *http.Request) ([]byte, bool) {
	dst = http1.AppendRequestLine(dst, http.MethodGet, r.RequestURI)
	dst = http1.AppendHeader(dst, "Host", r.Host)
	dst = http1.AppendHeader(dst, "Connection", "Upgrade")
	dst = http1.AppendHeader(dst, "Upgrade", "websocket")
	dst = http1.AppendHeader(dst, "Sec-WebSocket-Key", nonce())
	dst, ok := appendHeaders(dst, r.Header, func(name, value string) bool {
		return name == protocolHeader || name == "Sec-Websocket-Key" || name == "Host" && value == r.Host || isHopByHop(name, value)
	})
	return append(dst, "\r\n"...), ok && isLineSafe(r.RequestURI) && isLineSafe(r.Host)
}

// nonce returns 16 random bytes in base64 (RFC 6455 section 4.1, item 7).
func nonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

// openTunnel turns the 101 just parsed into the 200 of HTTP/2, after which bytes pass unchanged.
// Any other 2xx did not open a WebSocket and must not look to the client as if it had. It reports
// whether the tunnel opened.
func (o *response) openTunnel() bool {
	switch s := o.parsed.Status; {
	case s == http.StatusSwitchingProtocols:
		o.parsed.Status, o.parsed.Body = http.StatusOK, http1.Framing{}
		return true
	case s >= 200 && s < 300:
		o.parsed.Status = http.StatusBadGateway
	}
	return false
}

// CloseWrite ends a WebSocket's stream in order, in both directions: HTTP/2's server cannot
// half-close and continue to read. For a response that is not a tunnel it returns an error and
// does nothing.
func (c *ClientStream) CloseWrite() error {
	if c.out.state != inTunnel || c.closed.Load() {
		return net.ErrClosed
	}
	c.complete.Store(true)
	c.in.close(net.ErrClosed)
	return nil
}
