package breaker

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// From 250 ms on a response may be overdue, and a client that leaves is evidence. One that leaves before is noticed
// before, however long ago the deadline of the connection was set by an earlier request.
func TestAClientThatLeavesEarlyIsNoticedEarly(t *testing.T) {
	for _, earlier := range []time.Duration{0, 10 * time.Millisecond, 99 * time.Millisecond, 101 * time.Millisecond, 199 * time.Millisecond} {
		t.Run(earlier.String(), func(t *testing.T) {
			handle := func(c *peers.Conn) {
				if earlier > 0 {
					c.Head()
					c.Say(peers.OK200)
				}
				c.Head()
				_, _ = c.Read(make([]byte, 1)) // until it is closed
			}
			proxytest.InMemory(t, handle, peers.WithBreaker, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				if earlier > 0 {
					c.Send(peers.Get("/")).Want(200, "*")
					time.Sleep(earlier)
				}
				c.Send(peers.Get("/"))
				time.Sleep(150 * time.Millisecond)
				_ = c.Close()
				time.Sleep(99 * time.Millisecond)
				if n := m.Guard().Abandoned; n != 1 {
					t.Errorf("%d abandoned attempts", n)
				}
			})
		})
	}
}
