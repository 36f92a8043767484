package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/retryproxy/retryproxy/internal/needs"
	"github.com/retryproxy/retryproxy/policy"
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
		"retried where it may run twice": {get("/second"), 200, policy.OutcomeRecovered},
		"else it ends":                   {"POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 502, policy.OutcomeGaveUpNotIdempotent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startUpstream(t, func(c *upConn) {
				for headers := c.head(); headers != ""; headers = c.head() {
					if strings.HasPrefix(headers, "GET /first") {
						if err := deafen(c.Conn); err != nil {
							t.Error(err)
						}
					}
					c.say(ok200)
				}
			})
			p := startProxy(t, u, func(c *Config) { c.Default.RequestTimeout = time.Minute })
			p.dial().send(get("/first")).want(200, "ok")
			soon(t, "the connection to be idle", func() bool { return p.Stats().Upstreams[0].Pool.Idle == 1 })
			began := time.Now()
			res, _, err := p.dial().send(tc.request).response("GET")
			if err != nil || res.StatusCode != tc.status {
				t.Errorf("%v, %v, want status %d", res, err, tc.status)
			}
			if took := time.Since(began); took < rawsocket.AckWithin || took > 6*rawsocket.AckWithin {
				t.Errorf("it took %v", took)
			}
			p.wantOutcome(1, tc.outcome)
		})
	}
}

// An upstream's machine vanishes during an upload. The client learns it about as soon as that of a
// request without a body, not when the write deadline passes after one to two minutes.
func TestAnUploadToAVanishedUpstreamEnds(t *testing.T) {
	needs.NetAdmin(t)
	const size = 4 << 20 // may fit into the buffers on the way, so the body has another byte
	withLength := requestText("POST / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", size+1))
	chunked := requestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n", size+1)
	for name, tc := range map[string]struct {
		request string
		sent    int // of the body
		vanish  func(c *upConn, gone chan<- struct{})
		tls     bool
		change  func(c *Config)
	}{
		"spliced":                     {request: withLength, sent: size, vanish: vanishWithin, change: func(c *Config) { c.Default.RetryBufferBytes = 1 }},
		"copied":                      {request: chunked, sent: size, vanish: vanishWithin},
		"over TLS":                    {request: withLength, sent: size, vanish: vanishWithin, tls: true},
		"while the client is slow":    {request: withLength, sent: 100 << 10, vanish: vanishWithin},
		"while its window was closed": {request: chunked, sent: size, vanish: vanishUnread},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := func(c *Config) {
				c.Default.RequestTimeout, c.Default.BodyIdleTimeout = 5*time.Minute, time.Minute
				if tc.change != nil {
					tc.change(c)
				}
			}
			var p *testProxy
			gone := make(chan struct{})
			vanish := func(c *upConn) { tc.vanish(c, gone) }
			if tc.tls {
				p, _ = secureUpstream(t, vanish, nil, upstream.TLSFiles{}, change)
			} else {
				p = startProxy(t, startUpstream(t, vanish), change)
			}
			c := p.dial()
			c.send(tc.request)
			began := time.Now()
			go func() {
				_, _ = c.Write(make([]byte, tc.sent))
				<-gone
				_, _ = c.Write([]byte("x")) // if the rest was acknowledged, this is not
			}()
			c.want(502, "*")
			if took := time.Since(began); took > 6*rawsocket.AckWithin {
				t.Errorf("it took %v", took)
			}
			p.wantOutcome(0, policy.OutcomeGaveUpNotIdempotent)
		})
	}
}

// The body fits into the buffers that are written before a second goroutine is started, but not
// into the socket's.
func TestASmallUploadToAVanishedUpstreamEnds(t *testing.T) {
	needs.NetAdmin(t)
	t.Parallel()
	u := startUpstream(t, func(c *upConn) {
		c.head()
		if err := deafen(c.Conn); err != nil {
			t.Error(err)
		}
		c.say(ok200)
		<-c.t.Context().Done()
	})
	p := startProxy(t, u, func(c *Config) {
		c.Default.RequestTimeout, c.Default.BodyIdleTimeout = 5*time.Minute, time.Minute
		c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				_ = nc.(*net.TCPConn).SetWriteBuffer(4 << 10)
			}
			return nc, err
		}
	})
	p.dial().send(get("/first")).want(200, "ok")
	soon(t, "the connection to be idle", func() bool { return p.Stats().Upstreams[0].Pool.Idle == 1 })
	began := time.Now()
	p.dial().send(requestText("POST / HTTP/1.1", "Host: a", "Content-Length: 60000")+strings.Repeat("x", 60000)).want(502, "*")
	if took := time.Since(began); took > 6*rawsocket.AckWithin {
		t.Errorf("it took %v", took)
	}
}

// vanishWithin reads the beginning of a request. Then its machine acknowledges nothing any more.
func vanishWithin(c *upConn, gone chan<- struct{}) {
	c.head()
	_, _ = io.ReadFull(c.Reader, make([]byte, 64<<10))
	vanishUnread(c, gone)
}

// vanishUnread reads nothing, so that its window closes unless it vanishes before.
func vanishUnread(c *upConn, gone chan<- struct{}) {
	time.Sleep(time.Second)
	nc := c.Conn
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	if err := deafen(nc); err != nil {
		c.t.Error(err)
	}
	close(gone)
	<-c.t.Context().Done()
}

// An upstream that acknowledges the request may take any time to respond.
func TestASlowUpstreamHasNotVanished(t *testing.T) {
	t.Parallel()
	p := startProxy(t, startUpstream(t, func(c *upConn) {
		c.head()
		time.Sleep(rawsocket.AckWithin + time.Second)
		c.say(ok200)
	}), func(c *Config) { c.Default.RequestTimeout = time.Minute })
	p.dial().send(get("/")).want(200, "ok")
	if n := p.Stats().Upstreams[0].Pool.Dials; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// deafen has the kernel drop whatever comes for c, as if its machine were gone.
func deafen(c net.Conn) error {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	drop := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	return errors.Join(err, set)
}
