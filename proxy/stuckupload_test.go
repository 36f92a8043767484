package proxy

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// The upstream reads nothing, so the pump is stuck in a write and reads nothing from the client.
func TestClientLeavingEndsAnUploadThatIsStuck(t *testing.T) {
	t.Parallel()
	const size = 64 << 20 // more than all socket buffers
	for name, tc := range map[string]struct {
		head   string
		polite bool
	}{
		"spliced": {peers.RequestText("PUT / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", size)), false},
		"chunked": {peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n", size), true},
	} {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " answered=", answered), func(t *testing.T) {
				stuck, end := make(chan struct{}), make(chan error, 1)
				u := peers.StartUpstream(t, func(c *peers.Conn) {
					c.Head()
					if answered {
						c.Say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
					}
					<-stuck
					_, err := io.Copy(io.Discard, c.Reader)
					end <- err
				})
				release := sync.OnceFunc(func() { close(stuck) })
				t.Cleanup(release)
				p := startProxy(t, u, nil)
				c := p.Dial().Send(tc.head)
				if answered {
					_, _ = c.Reader.ReadString('5')
				}
				fill(c, p)
				left := time.Now()
				if tc.polite {
					_ = c.Close()
				} else {
					c.Reset()
				}
				p.WantOutcome(0, policy.OutcomeClientGone)
				release()
				peers.Gone(t, p.Front, left, end)
			})
		}
	}
}

// fill sends the body until the pump is stuck, and leaves room in flight for the client's end to
// arrive.
func fill(c *peers.Client, p *testProxy) {
	c.T.Helper()
	block := strings.Repeat("x", 16<<10)
	for still, last := 0, uint32(0); still < 3; {
		c.Send(block)
		time.Sleep(time.Millisecond)
		if now := p.pieces(); now != last {
			still, last = 0, now
			continue
		}
		still++
		time.Sleep(30 * time.Millisecond)
	}
}

// pieces returns how many pieces of bodies the pumps have moved.
func (p *testProxy) pieces() (n uint32) {
	p.connected.each(func(c *conn) { n += c.x.Upload().Pieces() })
	return n
}
