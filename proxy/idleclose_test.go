package proxy

import (
	"net"
	"strings"
	"testing"
)

// An upstream responds to one request and closes its other connections at that moment. The next
// requests are still served with one attempt each, whether they could be retried or not.
func TestConnectionsThatEndWhileIdleCostNoRetry(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		change func(*Config)
	}{
		"GET":        {method: "GET", change: func(*Config) {}},
		"POST":       {method: "POST", change: func(*Config) {}},
		"no retries": {method: "GET", change: func(c *Config) { c.Default.Policy.MaxRetries = 0 }},
		"dry_run":    {method: "GET", change: func(c *Config) { c.Default.DryRun = true }},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, startUpstream(t, answersAndCloses), tc.change)
			clients := make([]*client, 4)
			for i := range clients {
				clients[i] = p.dial()
			}
			for range 40 {
				all(clients, get("/"))
				clients[0].send(get("/last")).want(200, "ok")
				all(clients, tc.method+" /next HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
			}
			if n := p.seen.retried(); n > 0 {
				t.Errorf("%d requests were repeated", n)
			}
		})
	}
}

// all send the request at once, and are answered.
func all(clients []*client, request string) {
	for _, c := range clients {
		c.send(request)
	}
	for _, c := range clients {
		c.want(200, "ok")
	}
}

// answersAndCloses answers, and before it answers a request for /last it ends all other connections.
func answersAndCloses(c *upConn) {
	for headers := c.head(); headers != ""; headers = c.head() {
		if strings.Contains(headers, "/last") {
			c.up.closeOthers(c)
		}
		c.say(ok200)
	}
}

// closeOthers ends all connections but c.
func (u *fakeUpstream) closeOthers(c *upConn) {
	u.each(func(other net.Conn) {
		if other != net.Conn(c.Conn) {
			other.Close()
		}
	})
}
