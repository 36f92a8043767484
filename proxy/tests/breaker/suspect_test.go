package breaker

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// An upstream whose responses slow down from 10 ms to 800 ms is in doubt until the first of them.
// Requests that arrive before it are queued, however short the wait for a permit may be, and even
// if no request is queued during an outage.
func TestClientsOfASuspectUpstreamWaitAndAreServed(t *testing.T) {
	for name, change := range map[string]func(*proxy.Config){
		"held in an outage":        func(c *proxy.Config) { c.Default.FailFast, c.Default.LimitQueueTimeout = false, 10*time.Millisecond },
		"turned away in an outage": func(c *proxy.Config) { c.Default.FailFast = true },
	} {
		t.Run(name, func(t *testing.T) {
			var slow atomic.Bool
			handle := func(c *peers.Conn) {
				for c.Head() != "" {
					time.Sleep(10 * time.Millisecond)
					if slow.Load() {
						time.Sleep(790 * time.Millisecond)
					}
					c.Say(peers.OK200)
				}
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) { peers.WithBreaker(c); change(c) }, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				for range 300 {
					c.Send(peers.Get("/")).Want(200, "ok")
				}
				slow.Store(true)
				var asking sync.WaitGroup
				doubted := 0
				for range 100 {
					c := m.Client()
					asking.Go(func() { c.Send(peers.Get("/")).Want(200, "ok") })
					time.Sleep(10 * time.Millisecond)
					if m.Guard().Suspect {
						doubted++
					}
				}
				asking.Wait()
				if g := m.Guard(); doubted < 40 || g.Opened[breaker.OpenedByStall] > 0 {
					t.Errorf("in doubt for %d of 100 clients: %+v", doubted, g)
				}
			})
		})
	}
}
