package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// A client that has sent more than its upstream takes does not delay the proxy, so it is not evicted as
// slow. One that sends nothing more does.
func TestAnUploadThatTheUpstreamDoesNotReadIsNotSlow(t *testing.T) {
	wantSlowOnlyIfNothingComes(t, func(*Config) {}, func(p *testProxy, path string, sendsOn bool) (end func()) {
		c := p.Dial().Send("POST " + path + " HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1000000000\r\n\r\na")
		if sendsOn {
			go func() { _, _ = io.Copy(c, endlessly{}) }()
		}
		return func() {
			_ = c.Conn.(*net.TCPConn).SetLinger(0) // an orderly end would wait behind the upload
			_ = c.Close()
		}
	})
}

// The same for a stream, whose unread bytes are in the proxy.
func TestAStreamThatTheUpstreamDoesNotReadIsNotSlow(t *testing.T) {
	wantSlowOnlyIfNothingComes(t, peers.SpeakHTTP2, func(p *testProxy, path string, sendsOn bool) (end func()) {
		ctx, leave := context.WithCancel(t.Context())
		nothing, more := io.Pipe()
		rest := io.Reader(nothing)
		if sendsOn {
			rest = endlessly{}
		}
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+p.Addr+path, io.MultiReader(strings.NewReader("a"), rest))
		client, err := peers.HTTP2Client(t, nil).Transport.(*http.Transport).NewClientConn(ctx, "http", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if res, err := client.RoundTrip(req); err == nil {
				_ = res.Body.Close()
			}
			_ = client.Close()
		}()
		return func() {
			leave()
			_ = more.Close()
			<-ended
		}
	})
}

// wantSlowOnlyIfNothingComes has a client upload to an upstream that reads nothing, and one that sends a
// byte to one that reads everything. Only the second may delay the proxy.
func wantSlowOnlyIfNothingComes(t *testing.T, change func(*Config), upload func(p *testProxy, path string, sendsOn bool) (end func())) {
	t.Helper()
	release := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		if strings.HasPrefix(c.Head(), "POST /stuck") {
			<-release
		}
		_, _ = io.Copy(io.Discard, c.Conn)
	})
	t.Cleanup(func() { close(release) })
	p := startProxy(t, u, change)
	for path, want := range map[string]delay{"/stuck": delayNone, "/slow": delayBody} {
		end := upload(p, path, path == "/stuck")
		lately := 0 // how many looks found what is to be
		peers.Soon(t, path+" to stay so", func() bool {
			all := 0
			p.connected.each(func(c *conn) {
				all++
				is, _ := c.delays(p.process.Clock.Now())
				if lately++; is != want || c.http2.Load() == nil && (!c.x.Upload().IsAwaited() || c.client.HasUnread() != (path == "/stuck")) {
					lately = 0
				}
			})
			return all > 0 && lately > 50*all
		})
		end()
		peers.Soon(t, "its end", func() bool { return p.Stats().Connections == 0 })
	}
}

// endlessly is a body without end.
type endlessly struct{}

func (endlessly) Read(p []byte) (int, error) { return len(p), nil }
