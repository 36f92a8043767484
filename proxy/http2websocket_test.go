package proxy

//lint:file-ignore SA1019 net/http's Transport, named instead of x/net's, does not let the pseudo-field of extended CONNECT pass

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/policy"
)

// webSocket is a client's stream of bytes over HTTP/2.
type webSocket struct {
	t    *testing.T
	to   *io.PipeWriter
	from io.ReadCloser
	res  *http.Response
}

// openWebSocket opens one by extended CONNECT (RFC 8441), or whatever protocol says.
func (p *front) openWebSocket(t *testing.T, protocol string) *webSocket {
	t.Helper()
	body, to := io.Pipe()
	req, err := http.NewRequest("CONNECT", "http://"+p.addr+"/chat?room=1", body)
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
	return &webSocket{t: t, to: to, from: res.Body, res: res}
}

func (w *webSocket) echo(s string) {
	w.t.Helper()
	sent := make(chan error, 1)
	go func() { _, err := io.WriteString(w.to, s); sent <- err }()
	got := make([]byte, len(s))
	if _, err := io.ReadFull(w.from, got); err != nil || string(got) != s {
		w.t.Fatalf("%d bytes came back, %v", len(got), err)
	}
	if err := within(w.t, "the bytes to be taken", sent); err != nil {
		w.t.Fatal(err)
	}
}

func echoing(before ...string) func(c *upConn) {
	return func(c *upConn) {
		for _, s := range before {
			c.head()
			c.say("%s", s)
		}
		if c.head() == "" {
			return
		}
		c.say("%s", switching101)
		_, _ = io.Copy(c.Conn, c.Reader)
	}
}

func TestWebSocketOverHTTP2(t *testing.T) {
	u := startUpstream(t, echoing())
	p := startProxy(t, u, speakHTTP2)
	w := p.openWebSocket(t, "websocket")
	if w.res.StatusCode != 200 || w.res.Header.Get("Sec-Websocket-Accept") != "" || w.res.Header.Get("Upgrade") != "" {
		t.Errorf("%d %v", w.res.StatusCode, w.res.Header)
	}
	for _, s := range []string{"\x81\x05hello", "GET / HTTP/1.1\r\n\r\n", "0\r\n\r\n", strings.Repeat("\x00", 300_000)} {
		w.echo(s)
	}
	w.to.Close() // the echo ends with it
	if rest, err := io.ReadAll(w.from); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v at the end", rest, err)
	}
	p.wantOutcome(0, policy.OutcomeUpgraded)
	headers := u.head(0)
	if !strings.HasPrefix(headers, "GET /chat?room=1 HTTP/1.1\r\nHost: "+p.addr+"\r\n") || strings.Contains(headers, "protocol") ||
		strings.Contains(headers, "Transfer-Encoding") || strings.Contains(headers, "not for") ||
		!strings.Contains(headers, "Origin: http://a\r\n") || !strings.Contains(headers, "Upgrade: websocket\r\n") {
		t.Errorf("upstream got %q", headers)
	}
	_, key, _ := strings.Cut(headers, "Sec-WebSocket-Key: ")
	key, _, _ = strings.Cut(key, "\r\n")
	if b, err := base64.StdEncoding.DecodeString(key); err != nil || len(b) != 16 {
		t.Errorf("key %q of %d bytes, %v", key, len(b), err)
	}
}

func TestAWebSocketOverHTTP2ThatIsRefusedIsRetried(t *testing.T) {
	p := startProxy(t, startUpstream(t, echoing(bad503)), speakHTTP2)
	w := p.openWebSocket(t, "websocket")
	w.echo("after the second handshake")
	w.to.Close()
	_, _ = io.ReadAll(w.from)
	if o := p.seen.outcome(t, 0); o != policy.OutcomeUpgraded || p.seen.retried() != 1 {
		t.Errorf("outcome %v after %d retries", o, p.seen.retried())
	}
}

// The upstream's end is told as the stream's, not as a reset.
func TestAWebSocketOverHTTP2EndsWithTheUpstreams(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("%s", switching101+"bye")
	})
	w := startProxy(t, u, speakHTTP2).openWebSocket(t, "websocket")
	if got, err := io.ReadAll(w.from); err != nil || string(got) != "bye" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAWebSocketOverHTTP2ThatBreaksLooksBroken(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("%s", switching101)
		c.body(1)
		c.reset()
	})
	w := startProxy(t, u, speakHTTP2).openWebSocket(t, "websocket")
	if _, err := w.to.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(w.from); err == nil {
		t.Errorf("%q and an orderly end", got)
	}
}

func TestARefusedWebSocketDoesNotLookOpen(t *testing.T) {
	for _, c := range []struct {
		name, protocol, answer string
		status, sends          int
	}{
		{"the upstream's no", "websocket", "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403, 1},
		{"a response as if nothing had been asked for", "websocket", ok200, 502, 1},
		{"another protocol", "connect-udp", ok200, 501, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := startUpstream(t, script(c.answer))
			w := startProxy(t, u, speakHTTP2).openWebSocket(t, c.protocol)
			if w.res.StatusCode != c.status || u.sends() != c.sends {
				t.Errorf("%d after %d sends, want %d after %d", w.res.StatusCode, u.sends(), c.status, c.sends)
			}
		})
	}
}
