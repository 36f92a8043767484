package proxy

import (
	"context"
	"fmt"
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
