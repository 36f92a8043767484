package proxy

import (
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// In whatever way a client has its requests ended right after they begin, it can do so to an
// upstream only as often as allowed. Beyond that its requests are queued, and those that end in
// the queue never reach the upstream.
func TestEveryPrematureEndOfARequestIsCharged(t *testing.T) {
	const most = 3
	for name, tc := range map[string]struct {
		method string
		fields []string
		end    bool
		do     func(c *peers.FrameClient, id uint32)
	}{
		"RST_STREAM":                      {"GET", nil, true, func(c *peers.FrameClient, id uint32) { _ = c.WriteRSTStream(id, http2.ErrCodeCancel) }},
		"WINDOW_UPDATE of 0":              {"GET", nil, true, func(c *peers.FrameClient, id uint32) { _ = c.WriteWindowUpdate(id, 0) }},
		"a window that overflows":         {"GET", nil, true, func(c *peers.FrameClient, id uint32) { _ = c.WriteWindowUpdate(id, 1<<31-1) }},
		"DATA behind the end":             {"GET", nil, true, func(c *peers.FrameClient, id uint32) { _ = c.WriteData(id, false, []byte("x")) }},
		"HEADERS behind the end":          {"GET", nil, true, func(c *peers.FrameClient, id uint32) { c.Next = id; c.Begin("GET", "/", true) }},
		"a stream that depends on itself": {"GET", nil, true, func(c *peers.FrameClient, id uint32) { _ = c.WritePriority(id, http2.PriorityParam{StreamDep: id}) }},
		"more than content-length":        {"POST", []string{"content-length", "5"}, false, func(c *peers.FrameClient, id uint32) { _ = c.WriteData(id, false, []byte("123456")) }},
		"less than content-length":        {"POST", []string{"content-length", "5"}, false, func(c *peers.FrameClient, id uint32) { _ = c.WriteData(id, true, []byte("1234")) }},
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, peers.NeverAnswers)
			p := startProxy(t, u, func(c *Config) {
				peers.SpeakHTTP2(c)
				c.PrematureEnds = floodguard.Limits{Age: time.Hour, Most: most, Responses: 1000}
			})
			c := p.DialFrames(t)
			for n := range most {
				id := c.Begin(tc.method, "/", tc.end, tc.fields...)
				peers.Soon(t, "the request reaches the upstream", func() bool { return u.Sends() == n+1 })
				tc.do(c, id)
				peers.Soon(t, "the request is done", func() bool { return p.streams(t) == 0 })
			}
			held := c.Begin(tc.method, "/", tc.end, tc.fields...)
			c.Heard()
			tc.do(c, held)
			c.Heard()
			peers.Soon(t, "the held request is gone", func() bool { return p.streams(t) == 0 })
			if u.Sends() != most {
				t.Errorf("%d requests reached the upstream, want %d", u.Sends(), most)
			}
		})
	}
}

// streams counts those of all connections.
func (p *testProxy) streams(t *testing.T) (n int) {
	t.Helper()
	p.connected.each(func(c *conn) {
		if c.client.Stream != nil {
			n++
		}
	})
	return n
}
