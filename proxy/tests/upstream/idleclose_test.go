package upstream

import (
	"net"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// An upstream responds to one request and closes its other connections at that moment. The next
// requests are still served with one attempt each, whether they could be retried or not.
func TestConnectionsThatEndWhileIdleCostNoRetry(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		change func(*proxy.Config)
	}{
		"GET":        {method: "GET", change: func(*proxy.Config) {}},
		"POST":       {method: "POST", change: func(*proxy.Config) {}},
		"no retries": {method: "GET", change: func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 }},
		"dry_run":    {method: "GET", change: func(c *proxy.Config) { c.Default.DryRun = true }},
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, peers.StartUpstream(t, answersAndCloses), tc.change)
			clients := make([]*peers.Client, 4)
			for i := range clients {
				clients[i] = p.Dial()
			}
			for range 40 {
				all(clients, peers.Get("/"))
				clients[0].Send(peers.Get("/last")).Want(200, "ok")
				all(clients, tc.method+" /next HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
			}
			if n := p.Seen.Retried(); n > 0 {
				t.Errorf("%d requests were repeated", n)
			}
		})
	}
}

// all send the request at once, and are answered.
func all(clients []*peers.Client, request string) {
	for _, c := range clients {
		c.Send(request)
	}
	for _, c := range clients {
		c.Want(200, "ok")
	}
}

// answersAndCloses answers, and before it answers a request for /last it ends all other connections.
func answersAndCloses(c *peers.Conn) {
	for headers := c.Head(); headers != ""; headers = c.Head() {
		if strings.Contains(headers, "/last") {
			closeOthers(c.Up, c)
		}
		c.Say(peers.OK200)
	}
}

// closeOthers ends all connections but c.
func closeOthers(u *peers.Upstream, c *peers.Conn) {
	u.Each(func(other net.Conn) {
		if other != net.Conn(c.Conn) {
			other.Close()
		}
	})
}
