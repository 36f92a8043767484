package breaker

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// One URL hangs, asked for by several clients again and again; another one is asked for
// every two seconds and answered at once. The breaker stays closed, and the client of the
// other one never notices.
func TestOneHangingURLOpensNoBreakerOfALightlyUsedUpstream(t *testing.T) {
	handle := func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "GET /hangs ") {
				_, _ = c.Read(make([]byte, 1))
				return
			}
			time.Sleep(10 * time.Millisecond)
			c.Say(peers.OK200)
		}
	}
	for name, tc := range map[string]struct {
		clients int
		timeout time.Duration // of an attempt
		leaves  time.Duration
	}{
		"one client":                           {1, time.Second, time.Minute},
		"five clients":                         {5, time.Second, time.Minute},
		"thirty clients":                       {30, time.Second, time.Minute},
		"five clients who leave, no timeout":   {5, 0, 3 * time.Second},
		"thirty clients who leave, no timeout": {30, 0, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.WithBreaker(c)
				c.Default.QueueTimeout, c.Default.AttemptTimeout = 10*time.Second, tc.timeout
			}, func(t *testing.T, m *proxytest.Memory) {
				ask := func() {
					began := time.Now()
					c := m.Client()
					c.Send(peers.Get("/")).Want(200, "ok")
					c.Close()
					if took := time.Since(began); took > 50*time.Millisecond {
						t.Errorf("served after %v", took)
					}
				}
				for range 30 {
					ask()
					time.Sleep(2 * time.Second)
				}
				over := time.Now().Add(time.Minute)
				var hanging sync.WaitGroup
				for i := range tc.clients {
					hanging.Go(func() {
						time.Sleep(time.Duration(i) * 37 * time.Millisecond)
						for time.Now().Before(over) {
							c := m.Client().Send(peers.Get("/hangs"))
							_ = c.SetReadDeadline(time.Now().Add(tc.leaves))
							_, _ = c.Read(make([]byte, 4096))
							c.Close()
						}
					})
				}
				for time.Now().Before(over) {
					ask()
					time.Sleep(2 * time.Second)
				}
				hanging.Wait()
				for why, n := range m.Guard().Opened {
					if n > 0 {
						t.Errorf("opened %d times by %v", n, breaker.OpenedBy(why))
					}
				}
			})
		})
	}
}
