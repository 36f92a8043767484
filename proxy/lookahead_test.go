package proxy

import (
	"net"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/sock"
)

// An upstream answers one request and closes its other connections at that moment: some
// of them were looked at ahead, with that of the request. Whoever comes next is
// answered all the same by one attempt, whether it could be repeated or not.
func TestConnectionsThatEndBehindALookAhead(t *testing.T) {
	retryOn := func(s string) func(*Config) {
		return func(c *Config) {
			on, err := policy.ParseRetryOn(s)
			if err != nil {
				t.Fatal(err)
			}
			c.Default.Policy.RetryOn = on
		}
	}
	for name, tc := range map[string]struct {
		method string
		change func(*Config)
		alone  bool // looked at one by one
	}{
		"GET":                {method: "GET", change: func(*Config) {}},
		"POST":               {method: "POST", change: func(*Config) {}},
		"no retries":         {method: "GET", change: func(c *Config) { c.Default.Policy.MaxRetries = 0 }, alone: true},
		"observed":           {method: "GET", change: func(c *Config) { c.Default.Observe = true }, alone: true},
		"resets are no fail": {method: "GET", change: retryOn("5xx"), alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, startUpstream(t, answersAndCloses), func(c *Config) {
				c.many = 1
				tc.change(c)
			})
			callers := make([]*caller, 4)
			for i := range callers {
				callers[i] = p.dial()
			}
			for range 40 {
				all(callers, get("/"))
				callers[0].send(get("/last")).want(200, "ok")
				all(callers, tc.method+" /next HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
			}
			if n := p.seen.retried(); n > 0 {
				t.Errorf("%d requests were repeated", n)
			}
			if n := p.Stats().Upstreams[0].Pool.Aheads; sock.ManyLooks && (n == 0) != tc.alone {
				t.Errorf("%d connections were taken by a look ahead", n)
			}
		})
	}
}

// all send the request at once, and are answered.
func all(callers []*caller, request string) {
	for _, c := range callers {
		c.send(request)
	}
	for _, c := range callers {
		c.want(200, "ok")
	}
}

// answersAndCloses answers, and before it answers a request for /last it ends all other connections.
func answersAndCloses(c *upConn) {
	for head := c.head(); head != ""; head = c.head() {
		if strings.Contains(head, "/last") {
			c.up.closeOthers(c)
		}
		c.say(ok200)
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
