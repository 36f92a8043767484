package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/needs"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// An upstream's machine vanishes between two requests and acknowledges nothing. The request on the
// pooled connection counts as lost long before its timeout, and is retried if it may be.
func TestAVanishedUpstreamIsNoticedBeforeTheTimeout(t *testing.T) {
	needs.NetAdmin(t)
	for name, tc := range map[string]struct {
		request string
		status  int
		outcome policy.Outcome
	}{
		"retried where it may run twice": {peers.Get("/second"), 200, policy.OutcomeRecovered},
		"else it ends":                   {"POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 502, policy.OutcomeGaveUpNotIdempotent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				for headers := c.Head(); headers != ""; headers = c.Head() {
					if strings.HasPrefix(headers, "GET /first") {
						if err := peers.Deafen(c.Conn); err != nil {
							t.Error(err)
						}
					}
					c.Say(peers.OK200)
				}
			})
			p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.RequestTimeout = time.Minute })
			p.Dial().Send(peers.Get("/first")).Want(200, "ok")
			peers.Soon(t, "the connection to be idle", func() bool { return p.Stats().Upstreams[0].Pool.Idle == 1 })
			began := time.Now()
			res, _, err := p.Dial().Send(tc.request).Response("GET")
			if err != nil || res.StatusCode != tc.status {
				t.Errorf("%v, %v, want status %d", res, err, tc.status)
			}
			if took := time.Since(began); took < rawsocket.AckWithin || took > 6*rawsocket.AckWithin {
				t.Errorf("it took %v", took)
			}
			p.WantOutcome(1, tc.outcome)
		})
	}
}

// An upstream's machine vanishes during an upload. The client learns it about as soon as that of a
// request without a body, not when the write deadline passes after one to two minutes.
func TestAnUploadToAVanishedUpstreamEnds(t *testing.T) {
	needs.NetAdmin(t)
	const size = 4 << 20 // may fit into the buffers on the way, so the body has another byte
	withLength := peers.RequestText("POST / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", size+1))
	chunked := peers.RequestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n", size+1)
	for name, tc := range map[string]struct {
		request string
		sent    int // of the body
		vanish  func(c *peers.Conn, gone chan<- struct{})
		tls     bool
		change  func(c *proxy.Config)
	}{
		"spliced":                     {request: withLength, sent: size, vanish: vanishWithin, change: func(c *proxy.Config) { c.Default.RetryBufferBytes = 1 }},
		"copied":                      {request: chunked, sent: size, vanish: vanishWithin},
		"over TLS":                    {request: withLength, sent: size, vanish: vanishWithin, tls: true},
		"while the client is slow":    {request: withLength, sent: 100 << 10, vanish: vanishWithin},
		"while its window was closed": {request: chunked, sent: size, vanish: vanishUnread},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := func(c *proxy.Config) {
				c.Default.RequestTimeout, c.Default.BodyIdleTimeout = 5*time.Minute, time.Minute
				if tc.change != nil {
					tc.change(c)
				}
			}
			var p *proxytest.Proxy
			gone := make(chan struct{})
			vanish := func(c *peers.Conn) { tc.vanish(c, gone) }
			if tc.tls {
				p, _ = proxytest.SecureUpstream(t, vanish, nil, upstream.TLSFiles{}, change)
			} else {
				p = proxytest.Start(t, peers.StartUpstream(t, vanish), change)
			}
			c := p.Dial()
			c.Send(tc.request)
			began := time.Now()
			go func() {
				_, _ = c.Write(make([]byte, tc.sent))
				<-gone
				_, _ = c.Write([]byte("x")) // if the rest was acknowledged, this is not
			}()
			c.Want(502, "*")
			if took := time.Since(began); took > 6*rawsocket.AckWithin {
				t.Errorf("it took %v", took)
			}
			p.WantOutcome(0, policy.OutcomeGaveUpNotIdempotent)
		})
	}
}

// The body fits into the buffers that are written before a second goroutine is started, but not
// into the socket's.
func TestASmallUploadToAVanishedUpstreamEnds(t *testing.T) {
	needs.NetAdmin(t)
	t.Parallel()
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		if err := peers.Deafen(c.Conn); err != nil {
			t.Error(err)
		}
		c.Say(peers.OK200)
		<-c.T.Context().Done()
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.Default.RequestTimeout, c.Default.BodyIdleTimeout = 5*time.Minute, time.Minute
		c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				_ = nc.(*net.TCPConn).SetWriteBuffer(4 << 10)
			}
			return nc, err
		}
	})
	p.Dial().Send(peers.Get("/first")).Want(200, "ok")
	peers.Soon(t, "the connection to be idle", func() bool { return p.Stats().Upstreams[0].Pool.Idle == 1 })
	began := time.Now()
	p.Dial().Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 60000")+strings.Repeat("x", 60000)).Want(502, "*")
	if took := time.Since(began); took > 6*rawsocket.AckWithin {
		t.Errorf("it took %v", took)
	}
}

// vanishWithin reads the beginning of a request. Then its machine acknowledges nothing any more.
func vanishWithin(c *peers.Conn, gone chan<- struct{}) {
	c.Head()
	_, _ = io.ReadFull(c.Reader, make([]byte, 64<<10))
	vanishUnread(c, gone)
}

// vanishUnread reads nothing, so that its window closes unless it vanishes before.
func vanishUnread(c *peers.Conn, gone chan<- struct{}) {
	time.Sleep(time.Second)
	nc := c.Conn
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	if err := peers.Deafen(nc); err != nil {
		c.T.Error(err)
	}
	close(gone)
	<-c.T.Context().Done()
}

// An upstream that acknowledges the request may take any time to respond.
func TestASlowUpstreamHasNotVanished(t *testing.T) {
	t.Parallel()
	p := proxytest.Start(t, peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		time.Sleep(rawsocket.AckWithin + time.Second)
		c.Say(peers.OK200)
	}), func(c *proxy.Config) { c.Default.RequestTimeout = time.Minute })
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	if n := p.Stats().Upstreams[0].Pool.Dials; n != 1 {
		t.Errorf("%d connections", n)
	}
}
