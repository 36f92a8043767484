package headers

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// Every final response has a Date (RFC 9110 section 6.6.1): the upstream's, or the time at which its
// response was received, or that of our own.
func TestEveryResponseHasADate(t *testing.T) {
	const theirs = "Thu, 01 Jan 1970 00:00:07 GMT"
	for name, tc := range map[string]struct {
		request, upstream string
		change            func(c *proxy.Config)
		status            int
		after             time.Duration // from the request to the Date
		date              string        // what it is, if it is the upstream's
	}{
		"relayed":            {request: peers.Get("/"), upstream: peers.OK200, status: 200},
		"the upstream's own": {request: peers.Get("/"), upstream: "HTTP/1.1 200 OK\r\ndate: " + theirs + "\r\nContent-Length: 2\r\n\r\nok", status: 200, date: theirs},
		"dry run":            {request: peers.Get("/"), upstream: peers.Bad503, status: 503, change: func(c *proxy.Config) { c.Default.DryRun = true }},
		"no response":        {request: peers.Get("/"), upstream: "", status: 502, after: 30 * time.Millisecond},
		"refused":            {request: "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", upstream: peers.OK200, status: 400},
		"not HTTP":           {request: "\x00\r\n\r\n", upstream: peers.OK200, status: 400},
		"Max-Forwards":       {request: "OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n", upstream: peers.OK200, status: 200},
		"our fallback": {request: peers.Get("/"), upstream: peers.Bad503, status: 203, after: 3 * time.Millisecond,
			change: func(c *proxy.Config) { c.Default.Fallbacks = []proxy.Fallback{{Status: 203}} }},
		"no connection": {request: peers.Get("/"), status: 502, after: 3 * time.Millisecond, change: func(c *proxy.Config) {
			c.Default.Upstream.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, peers.Script(tc.upstream), tc.change, func(t *testing.T, m *proxytest.Memory) {
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1100 * time.Millisecond)))
				want := tc.date
				if want == "" {
					want = time.Now().Add(tc.after).UTC().Format(http.TimeFormat)
				}
				res, _, err := m.Client().Send(tc.request).Response("GET")
				if err != nil || res.StatusCode != tc.status || len(res.Header["Date"]) != 1 || res.Header.Get("Date") != want {
					t.Errorf("%v, %v; want Date %s", res, err, want)
				}
			})
		})
	}
}

// A response that is kept during retries has the Date of its reception, and a Retry-After date is
// measured against the upstream's Date alone.
func TestTheDateIsWhenTheResponseWasReceived(t *testing.T) {
	kept := "HTTP/1.1 503 No\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\nbusy"
	proxytest.InMemory(t, peers.Script(kept, ""), func(c *proxy.Config) { c.Default.Policy.MaxRetries = 1 }, func(t *testing.T, m *proxytest.Memory) {
		want := time.Now().UTC().Format(http.TimeFormat)
		began := time.Now()
		res := m.Client().Send(peers.Get("/")).Want(503, "busy")
		if got := res.Header.Get("Date"); got != want || time.Since(began) < 9*time.Second {
			t.Errorf("Date %s after %v, want %s", got, time.Since(began), want)
		}
	})
}
