package upstream

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// Stray bytes of an upstream never pass for the response to the next request, however soon that is
// sent.
func TestAStrayResponseReachesNobody(t *testing.T) {
	stray := "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	for name, size := range map[string]int{"with a small response": 10, "with one that is spliced": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			body := strings.Repeat("x", size)
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				for c.Head() != "" {
					c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s", size, body, stray)
				}
			})
			p := proxytest.Start(t, u, nil)
			c := p.Dial()
			for range 30 {
				c.Send(peers.Get("/")).Want(200, body)
			}
			if u.Connections() != 30 {
				t.Errorf("%d connections for 30 requests: one with leftover bytes was used again", u.Connections())
			}
		})
	}
}

func TestALate408IsAnIdleClose(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				if c.Head() == "" {
					return
				}
				c.Say(peers.OK200)
				if c.N > 1 {
					_, _ = io.Copy(io.Discard, c)
					return
				}
				c.Head()
				c.Say("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			})
			p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 })
			c := p.Dial()
			c.Send(peers.Get("/")).Want(200, "ok")
			c.Send(fmt.Sprintf("%s / HTTP/1.1\r\nHost: a\r\n\r\n", method))
			if method == "GET" {
				c.Want(200, "ok")
			} else {
				c.Want(408, "")
			}
		})
	}
}
