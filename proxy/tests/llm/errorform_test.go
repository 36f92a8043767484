package llm

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// Every response of ours to a client of a language model's API has the body that these clients read,
// and its request id in the header of each vendor.
func TestOwnErrorsOfAModelAPI(t *testing.T) {
	rate, err := ratelimit.ParseRate("1/h")
	if err != nil {
		t.Fatal(err)
	}
	limited := func(c *proxy.Config) { c.Default.RateLimit.Rate = rate }
	for name, tc := range map[string]struct {
		request string
		status  int
		set     func(c *proxy.Config)
		first   string // a request before, which uses a limit up
	}{
		"malformed":          {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, nil, ""},
		"other host":         {"GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n", 403, func(c *proxy.Config) { c.ForwardProxy = true }, ""},
		"max forwards":       {"TRACE / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n", 405, nil, ""},
		"rate limit":         {peers.Get("/"), 429, limited, peers.Get("/")},
		"headers too large":  {"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", 431, nil, ""},
		"unknown coding":     {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cow\r\n\r\n", 501, nil, ""},
		"lost connection":    {peers.Post("abc"), 502, nil, ""},
		"no response":        {"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", 504, func(c *proxy.Config) { c.Default.RequestTimeout = 20 * time.Millisecond }, ""},
		"HTTP version":       {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505, nil, ""},
		"headers never came": {"GET / HTTP/1.1\r\nHost: a\r\n", 408, func(c *proxy.Config) { c.ReadHeaderTimeout = 20 * time.Millisecond }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				for headers := c.Head(); headers != ""; headers = c.Head() {
					switch {
					case strings.HasPrefix(headers, "GET /slow"):
						continue
					case strings.HasPrefix(headers, "POST"):
						c.Reset()
						return
					}
					c.Say(peers.OK200)
				}
			})
			p := proxytest.Start(t, u, func(c *proxy.Config) {
				c.Default.ModelAPI = true
				if tc.set != nil {
					tc.set(c)
				}
			})
			if tc.first != "" {
				p.Dial().Send(tc.first).Want(200, "ok")
			}
			res, body, err := p.Dial().Send(tc.request).Response("GET")
			if err != nil || res.StatusCode != tc.status || res.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("%v %s %v", res, body, err)
			}
			e := peers.CheckModelError(t, tc.status, body)
			if id := res.Header.Get("X-Request-Id"); id == "" || id != res.Header.Get("Request-Id") || id != e.RequestID || e.Error.Code != res.Header.Get("X-Retryproxy-Reason") {
				t.Errorf("%v %s", res.Header, body)
			}
		})
	}
}
