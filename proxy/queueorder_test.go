package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
)

func TestTheQueueIsServedInItsOrder(t *testing.T) {
	for _, tc := range []struct {
		order admission.Order
		want  string
	}{
		{admission.Newest, "/1 /4 /3 /2"},
		{admission.Oldest, "/1 /2 /3 /4"},
	} {
		inMemory(t, respondsAfter(time.Second, ok200), func(c *Config) {
			c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
			c.Default.QueueOrder, c.Default.LimitQueueTimeout = tc.order, time.Minute
		}, func(t *testing.T, m *memory) {
			var clients []*client
			for i := range 4 {
				clients = append(clients, m.client())
				clients[i].send(get(fmt.Sprintf("/%d", i+1)))
				time.Sleep(10 * time.Millisecond)
			}
			synctest.Wait()
			if u := m.Stats().Upstreams[0]; u.Guard.Queued != 3 || u.LongestWait != 30*time.Millisecond {
				t.Errorf("%d queued, the longest for %v, want 3 and 30ms", u.Guard.Queued, u.LongestWait)
			}
			for _, c := range clients {
				c.want(200, "ok")
			}
			if u := m.Stats().Upstreams[0]; u.Guard.Queued != 0 || u.LongestWait != 0 {
				t.Errorf("%d queued, the longest for %v, want none", u.Guard.Queued, u.LongestWait)
			}
			var sent []string
			for i := range m.up.sends() {
				sent = append(sent, strings.Fields(m.up.head(i))[1])
			}
			if got := strings.Join(sent, " "); got != tc.want {
				t.Errorf("order %d: sent %s, want %s", tc.order, got, tc.want)
			}
		})
	}
}

func TestAFullQueueDropsTheOldestWhateverItsOrder(t *testing.T) {
	inMemory(t, respondsAfter(time.Second, ok200), func(c *Config) {
		c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
		c.Default.QueueOrder, c.Default.LimitQueueTimeout, c.Default.QueueMax = admission.Oldest, time.Minute, 1
	}, func(t *testing.T, m *memory) {
		first, second, third := m.client(), m.client(), m.client()
		for _, c := range []*client{first, second, third} {
			c.send(get("/"))
			synctest.Wait()
		}
		if code, _, err := second.response("GET"); err != nil || code.StatusCode != 503 {
			t.Errorf("the oldest in the queue: %v %v, want 503", code, err)
		}
		first.want(200, "ok")
		third.want(200, "ok")
	})
}
