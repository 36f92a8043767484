package http2

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/needs"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

type connKey struct{}

// deafUpstream serves HTTP/2. After a response to /first its machine acknowledges nothing more on that
// connection.
func deafUpstream(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Protocols:   new(http.Protocols),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" {
				if err := peers.Deafen(r.Context().Value(connKey{}).(net.Conn)); err != nil {
					t.Error(err)
				}
			}
			_, _ = io.WriteString(w, "ok")
		}),
	}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// The machine of an upstream over HTTP/2 vanishes. What is in flight on its connection is lost about as soon
// as over HTTP/1.1, and what comes meanwhile does not join it.
func TestAVanishedUpstreamOverHTTP2IsNoticed(t *testing.T) {
	needs.NetAdmin(t)
	for method, status := range map[string]int{"GET": 200, "POST": 502} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			p := proxytest.StartTo(t, "h2c://"+deafUpstream(t), func(c *proxy.Config) { c.Default.RequestTimeout = time.Minute })
			p.Dial().Send(peers.Get("/first")).Want(200, "ok")
			peers.Soon(t, "the stream to end", func() bool { return p.Stats().Upstreams[0].Pool.Streams == 0 })
			began := time.Now()
			lost := p.Dial().Send(method + " /second HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
			other := make(chan time.Duration, 1)
			go func() {
				time.Sleep(rawsocket.AckWithin / 2) // it is silent for that long
				at := time.Now()
				p.Dial().Send(strings.Replace(peers.Get("/third"), "GET", "DELETE", 1)).Want(200, "ok")
				other <- time.Since(at)
			}()
			res, _, err := lost.Response(method)
			if err != nil || res.StatusCode != status {
				t.Errorf("%v, %v, want status %d", res, err, status)
			}
			if took := time.Since(began); took < rawsocket.AckWithin || took > 6*rawsocket.AckWithin {
				t.Errorf("it took %v", took)
			}
			if took := <-other; took > rawsocket.AckWithin/4 {
				t.Errorf("another request took %v", took)
			}
		})
	}
}
