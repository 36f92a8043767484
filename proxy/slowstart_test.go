package proxy

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
)

// During slow start the queue may admit at once, so a retry waits as at any other time. Without the
// wait, an upstream that is killed again uses up the retries of a request within a millisecond.
func TestARetryInSlowStartWaits(t *testing.T) {
	const wait = 30 * time.Millisecond
	const fails, serves, cuts = 0, 1, 2
	var mode atomic.Int32
	var cutAt []time.Time
	handle := func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			switch {
			case mode.Load() == fails:
				c.say(bad503)
			case mode.Load() == serves, !strings.Contains(headers, "/cut "): // others waited in the queue
				c.say(ok200)
			default:
				cutAt = append(cutAt, time.Now())
				return
			}
		}
	}
	inMemory(t, handle, func(c *Config) {
		withBreaker(c)
		c.Default.Policy.Backoff = fixedWait(t, wait)
	}, func(t *testing.T, m *memory) {
		for m.guard().Breaker == breaker.Closed {
			m.client().send(get("/"))
			time.Sleep(10 * time.Millisecond)
		}
		mode.Store(serves)
		for m.guard().Breaker != breaker.SlowStart {
			time.Sleep(time.Millisecond)
		}
		mode.Store(cuts)
		c := m.client().send(get("/cut"))
		time.Sleep(2*wait + wait/2)
		if m.guard().Breaker != breaker.SlowStart {
			t.Fatal("the breaker is not in slow start")
		}
		mode.Store(serves)
		c.want(200, "ok")
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
