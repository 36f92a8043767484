package proxy

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// An upstream answers one request and closes its other connections at that moment: some
// of them were looked at ahead, with that of the request. Whoever comes next is
// answered all the same, and what may not run twice does not.
func TestConnectionsThatEndBehindALookAhead(t *testing.T) {
	const rounds, open = 40, 4
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			u := startUpstream(t, func(c *upConn) {
				for head := c.head(); head != ""; head = c.head() {
					if strings.Contains(head, "/last") {
						c.up.closeOthers(c)
					}
					c.say(ok200)
				}
			})
			p := startProxy(t, u, func(c *Config) {
				c.many = 1
			})
			callers := make([]*caller, open)
			for i := range callers {
				callers[i] = p.dial()
			}
			for n := range rounds {
				for _, c := range callers {
					c.send(get("/"))
				}
				for _, c := range callers {
					c.want(200, "ok")
				}
				callers[0].send(get("/last")).want(200, "ok")
				for i, c := range callers {
					c.send(fmt.Sprintf("%s /next-%d-%d HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", method, n, i))
				}
				for i, c := range callers {
					c.want(200, "ok")
					if sent := u.countHeads(fmt.Sprintf("%s /next-%d-%d ", method, n, i)); sent != 1 && method == "POST" {
						t.Fatalf("round %d: the upstream has had it %d times", n, sent)
					}
				}
			}
		})
	}
}

// closeOthers ends all connections but c.
func (u *fakeUpstream) closeOthers(c *upConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for other := range u.open {
		if other != net.Conn(c.Conn) {
			other.Close()
		}
	}
}

// countHeads is how many heads that arrived begin so.
func (u *fakeUpstream) countHeads(begin string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, h := range u.heads {
		if strings.HasPrefix(h, begin) {
			n++
		}
	}
	return n
}
