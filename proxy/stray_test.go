package proxy

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// Stray bytes of an upstream never pass for the response to the next request, however soon that is
// sent.
func TestAStrayResponseReachesNobody(t *testing.T) {
	stray := "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	for name, size := range map[string]int{"with a small response": 10, "with one that is spliced": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			body := strings.Repeat("x", size)
			u := startUpstream(t, func(c *upConn) {
				for c.head() != "" {
					c.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s", size, body, stray)
				}
			})
			p := startProxy(t, u, nil)
			c := p.dial()
			for range 30 {
				c.send(get("/")).want(200, body)
			}
			if u.connections() != 30 {
				t.Errorf("%d connections for 30 requests: one with leftover bytes was used again", u.connections())
			}
		})
	}
}

func TestALate408IsAnIdleClose(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			u := startUpstream(t, func(c *upConn) {
				if c.head() == "" {
					return
				}
				c.say(ok200)
				if c.n > 1 {
					_, _ = io.Copy(io.Discard, c)
					return
				}
				c.head()
				c.say("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			})
			p := startProxy(t, u, func(c *Config) { c.Default.Policy.MaxRetries = 0 })
			c := p.dial()
			c.send(get("/")).want(200, "ok")
			c.send(fmt.Sprintf("%s / HTTP/1.1\r\nHost: a\r\n\r\n", method))
			if method == "GET" {
				c.want(200, "ok")
			} else {
				c.want(408, "")
			}
		})
	}
}
