package breaker

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// From 250 ms on a response may be overdue, and a client that leaves is evidence. One that leaves before is noticed
// before.
func TestAClientThatLeavesEarlyIsNoticedEarly(t *testing.T) {
	handle := func(c *peers.Conn) {
		c.Head()
		_, _ = c.Read(make([]byte, 1)) // until it is closed
	}
	proxytest.InMemory(t, handle, peers.WithBreaker, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send(peers.Get("/"))
		time.Sleep(150 * time.Millisecond)
		_ = c.Close()
		time.Sleep(99 * time.Millisecond)
		if n := m.Guard().Abandoned; n != 1 {
			t.Errorf("%d abandoned attempts", n)
		}
	})
}
