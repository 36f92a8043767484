package bridge

import (
	"crypto/rand"
	"encoding/base64"
	"net"
	"net/http"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// protocolField is where net/http puts the pseudo-field of extended CONNECT.
const protocolField = ":protocol"

// opensWebSocket says whether r is an extended CONNECT for a WebSocket
// (RFC 8441 section 4). Other protocols stay CONNECT and are refused as that.
func opensWebSocket(r *http.Request) bool {
	p := r.Header[protocolField]
	return r.Method == http.MethodConnect && len(p) == 1 && p[0] == "websocket"
}

// appendHandshake writes the head of r as the handshake of HTTP/1.1 that it
// stands for (RFC 8441 section 5, RFC 6455 section 4.1). False as for appendRequest.
func appendHandshake(dst []byte, r *http.Request) ([]byte, bool) {
	dst = http1.AppendRequestLine(dst, http.MethodGet, r.RequestURI)
	dst = http1.AppendField(dst, "Host", r.Host)
	dst = http1.AppendField(dst, "Connection", "Upgrade")
	dst = http1.AppendField(dst, "Upgrade", "websocket")
	dst = http1.AppendField(dst, "Sec-WebSocket-Key", nonce())
	dst, ok := appendFields(dst, r.Header, func(name, value string) bool {
		return name == protocolField || name == "Sec-Websocket-Key" || name == "Host" && value == r.Host || isHop(name, value)
	})
	return append(dst, "\r\n"...), ok && clean(r.RequestURI) && clean(r.Host)
}

// nonce is 16 random bytes (RFC 6455 section 4.1, item 7).
func nonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

// openTunnel turns the 101 just parsed into the 200 of HTTP/2, behind which
// bytes go as they are. Any other 2xx did not open a WebSocket, and must not
// look to the caller as if it had. It says whether it did.
func (o *response) openTunnel() bool {
	switch s := o.head.Status; {
	case s == http.StatusSwitchingProtocols:
		o.head.Status, o.head.Body = http.StatusOK, http1.Framing{}
		return true
	case s >= 200 && s < 300:
		o.head.Status = http.StatusBadGateway
	}
	return false
}

// CloseWrite ends a WebSocket's stream in order, in both directions: HTTP/2's
// server cannot send its end and read on. For a response that is not a tunnel it is
// an error and does nothing.
func (c *Caller) CloseWrite() error {
	if c.out.state != inTunnel || c.closed.Load() {
		return net.ErrClosed
	}
	c.whole.Store(true)
	c.in.close(net.ErrClosed)
	return nil
}
