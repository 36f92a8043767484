package proxy

import (
	"io"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// faultyObserver fails when a retry is counted.
type faultyObserver struct{ *peers.Recorder }

func (faultyObserver) Retry(policy.Reason) { panic("a fault of the test") }

// What serves a stream serves the next request of its connection, too, unless something may still have it: after a
// tunnel, or after a fault in whatever it did.
func TestAStreamIsUsedAgainUnlessOthersMayHaveIt(t *testing.T) {
	arrived, looked := make(chan struct{}), make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			arrived <- struct{}{}
			<-looked
			switch {
			case strings.Contains(headers, " /chat "):
				c.Say("%s", peers.Switching101)
				_, _ = io.Copy(c.Conn, c.Reader)
				return
			case strings.Contains(headers, " /fault "):
				c.Say(peers.Bad503)
			default:
				c.Say(peers.OK200)
			}
		}
	})
	for name, tc := range map[string]struct {
		begin func(c *peers.FrameClient) uint32
		end   func(c *peers.FrameClient, id uint32)
		again bool
	}{
		"a request": {func(c *peers.FrameClient) uint32 { return c.Begin("GET", "/", true) }, func(c *peers.FrameClient, _ uint32) { <-c.Statuses }, true},
		"a WebSocket": {func(c *peers.FrameClient) uint32 { return c.Begin("CONNECT", "/chat", false, ":protocol", "websocket") },
			func(c *peers.FrameClient, id uint32) { <-c.Statuses; _ = c.WriteData(id, true, nil) }, false},
		"a fault": {func(c *peers.FrameClient) uint32 { return c.Begin("GET", "/fault", true) }, func(c *peers.FrameClient, _ uint32) { <-c.Resets }, false},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &peers.Recorder{}
			conf := peers.NewConfig(t, "http://"+u.Addr().String(), seen)
			peers.SpeakHTTP2(conf)
			conf.Observe = peers.Always(faultyObserver{seen})
			s, err := New(conf)
			if err != nil {
				t.Fatal(err)
			}
			front, _ := peers.Serve(t, s, seen)
			c := front.DialFrames(t)
			var served [2]*conn
			for i := range served {
				begin, end := tc.begin, tc.end
				if i > 0 {
					begin, end = func(c *peers.FrameClient) uint32 { return c.Begin("GET", "/", true) }, func(c *peers.FrameClient, _ uint32) { <-c.Statuses }
				}
				id := begin(c)
				peers.Within(t, "a request at the upstream", arrived)
				s.connected.each(func(c *conn) {
					if c.client.Stream != nil {
						served[i] = c
						if i == 0 {
							c.evicted.Store(true)
						} else if c.evicted.Load() {
							t.Error("the next request can never be evicted")
						}
					}
				})
				looked <- struct{}{}
				end(c, id)
				peers.Soon(t, "its worker has returned", func() bool {
					n := 0
					s.connected.each(func(c *conn) {
						if h := c.http2.Load(); h != nil {
							n += h.served().Running()
						}
					})
					return n == 0
				})
			}
			if served[0] == nil || (served[0] == served[1]) != tc.again {
				t.Errorf("used again: %v, want %v", served[0] == served[1], tc.again)
			}
		})
	}
}
