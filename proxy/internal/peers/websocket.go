package peers

//lint:file-ignore SA1019 net/http's Transport, named instead of x/net's, does not let the pseudo-field of extended CONNECT pass

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// WebSocket is a client's stream of bytes over HTTP/2.
type WebSocket struct {
	T    *testing.T
	To   *io.PipeWriter
	From io.ReadCloser
	Res  *http.Response
}

// OpenWebSocket opens one by extended CONNECT (RFC 8441), or whatever protocol says.
func (p *Front) OpenWebSocket(t *testing.T, protocol string) *WebSocket {
	t.Helper()
	body, to := io.Pipe()
	req, err := http.NewRequest("CONNECT", "http://"+p.Addr+"/chat?room=1", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{":protocol": {protocol}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"not for HTTP/2"}, "Origin": {"http://a"}}
	tr := &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close(); res.Body.Close(); tr.CloseIdleConnections() })
	return &WebSocket{T: t, To: to, From: res.Body, Res: res}
}
