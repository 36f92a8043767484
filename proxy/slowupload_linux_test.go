package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// An upstream that reads slowly is not stuck: a client that half-closes within its body still gets
// a response.
func TestASlowUploadIsNotStuck(t *testing.T) {
	t.Parallel()
	const size = 640 << 10
	for name, headers := range map[string]string{
		"spliced": requestText("PUT / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", 10*size)),
		"chunked": requestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n", 10*size),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			taken := make(chan int, 1)
			u := startUpstream(t, func(c *upConn) {
				c.head()
				n := c.Buffered()
				for buf := make([]byte, 32<<10); ; time.Sleep(60 * time.Millisecond) { // slow is what it is to be
					m, err := c.Conn.Read(buf)
					if n += m; err != nil {
						taken <- n
						return
					}
				}
			})
			p := startProxy(t, u, func(c *Config) {
				c.Default.RetryBufferBytes = 1
				c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					nc, err := new(net.Dialer).DialContext(ctx, network, addr)
					if err == nil {
						_ = nc.(*net.TCPConn).SetWriteBuffer(64 << 10)
					}
					return nc, err
				}
			})
			c := p.dial()
			go func() {
				_, _ = c.Write([]byte(headers + strings.Repeat("x", size)))
				_ = c.Conn.(*net.TCPConn).CloseWrite()
			}()
			c.want(400, "*")
			p.wantOutcome(0, policy.OutcomeRequestBroken)
			if n := within(t, "the end upstream", taken); n > size {
				t.Errorf("%d bytes of a body of %d", n, size)
			}
		})
	}
}

// A client that has sent more than its upstream takes does not delay the proxy, so it is not evicted as
// slow. One that sends nothing more does.
func TestAnUploadThatTheUpstreamDoesNotReadIsNotSlow(t *testing.T) {
	release := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		if strings.HasPrefix(c.head(), "POST /stuck") {
			<-release
		}
		_, _ = io.Copy(io.Discard, c.Conn)
	})
	t.Cleanup(func() { close(release) })
	p := startProxy(t, u, func(*Config) {})
	for path, want := range map[string]delay{"/stuck": delayNone, "/slow": delayBody} {
		c := p.dial().send("POST " + path + " HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1000000000\r\n\r\na")
		if path == "/stuck" {
			go func() { _, _ = io.Copy(c, endlessly{}) }()
		}
		soon(t, path, func() bool {
			is, all := delayIdle, 0
			p.connected.each(func(c *conn) {
				is, _ = c.delays(p.process.Clock.Now())
				if all++; !c.x.Upload().AwaitedSince().IsZero() && c.client.HasUnread() != (path == "/stuck") {
					is = delayIdle // not yet
				}
			})
			return all == 1 && is == want
		})
		for range 50 { // and it stays so
			p.connected.each(func(c *conn) {
				if is, since := c.delays(p.process.Clock.Now()); is != want {
					t.Errorf("%s: delay %v since %v, want %v", path, is, since, want)
				}
			})
			time.Sleep(2 * time.Millisecond)
		}
		c.Close()
		soon(t, "its end", func() bool { return p.Stats().Connections == 0 })
	}
}

// endlessly is a body without end.
type endlessly struct{}

func (endlessly) Read(p []byte) (int, error) { return len(p), nil }
