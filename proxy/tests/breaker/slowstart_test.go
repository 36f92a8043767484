package breaker

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// During slow start the queue may admit at once, so a retry waits as at any other time. Without the
// wait, an upstream that is killed again uses up the retries of a request within a millisecond.
func TestARetryInSlowStartWaits(t *testing.T) {
	const wait = 30 * time.Millisecond
	const fails, serves, cuts = 0, 1, 2
	var mode atomic.Int32
	var cutAt []time.Time
	handle := func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			switch {
			case mode.Load() == fails:
				c.Say(peers.Bad503)
			case mode.Load() == serves, !strings.Contains(headers, "/cut "): // others waited in the queue
				c.Say(peers.OK200)
			default:
				cutAt = append(cutAt, time.Now())
				return
			}
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.Policy.Backoff = peers.FixedWait(t, wait)
	}, func(t *testing.T, m *proxytest.Memory) {
		for m.Guard().Breaker == breaker.Closed {
			m.Client().Send(peers.Get("/"))
			time.Sleep(10 * time.Millisecond)
		}
		mode.Store(serves)
		for m.Guard().Breaker != breaker.SlowStart {
			time.Sleep(time.Millisecond)
		}
		mode.Store(cuts)
		c := m.Client().Send(peers.Get("/cut"))
		time.Sleep(2*wait + wait/2)
		if m.Guard().Breaker != breaker.SlowStart {
			t.Fatal("the breaker is not in slow start")
		}
		mode.Store(serves)
		c.Want(200, "ok")
		for i := 1; i < len(cutAt); i++ {
			if gap := cutAt[i].Sub(cutAt[i-1]); gap < wait {
				t.Errorf("attempt %d came %v after the one before, want %v", i+1, gap, wait)
			}
		}
		if len(cutAt) != 3 {
			t.Errorf("%d attempts were cut, want 3", len(cutAt))
		}
	})
}
