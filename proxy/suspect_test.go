package proxy

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
)

// An upstream whose responses slow down from 10 ms to 800 ms is in doubt until the first of them.
// Requests that arrive before it are queued, however short the wait for a permit may be, and even
// if no request is queued during an outage.
func TestClientsOfASuspectUpstreamWaitAndAreServed(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"held in an outage":        func(c *Config) { c.Default.FailFast, c.Default.LimitQueueTimeout = false, 10*time.Millisecond },
		"turned away in an outage": func(c *Config) { c.Default.FailFast = true },
	} {
		t.Run(name, func(t *testing.T) {
			var slow atomic.Bool
			handle := func(c *upConn) {
				for c.head() != "" {
					time.Sleep(10 * time.Millisecond)
					if slow.Load() {
						time.Sleep(790 * time.Millisecond)
					}
					c.say(ok200)
				}
			}
			inMemory(t, handle, func(c *Config) { withBreaker(c); change(c) }, func(t *testing.T, m *memory) {
				c := m.client()
				for range 300 {
					c.send(get("/")).want(200, "ok")
				}
				slow.Store(true)
				var asking sync.WaitGroup
				doubted := 0
				for range 100 {
					c := m.client()
					asking.Go(func() { c.send(get("/")).want(200, "ok") })
					time.Sleep(10 * time.Millisecond)
					if m.guard().Suspect {
						doubted++
					}
				}
				asking.Wait()
				if g := m.guard(); doubted < 40 || g.Opened[breaker.OpenedByStall] > 0 {
					t.Errorf("in doubt for %d of 100 clients: %+v", doubted, g)
				}
			})
		})
	}
}
