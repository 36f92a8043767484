package breaker

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestTheNewestInTheQueueIsServedFirst(t *testing.T) {
	proxytest.InMemory(t, peers.RespondsAfter(time.Second, peers.OK200), func(c *proxy.Config) {
		c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
		c.Default.LimitQueueTimeout = time.Minute
	}, func(t *testing.T, m *proxytest.Memory) {
		var clients []*peers.Client
		for i := range 4 {
			clients = append(clients, m.Client())
			clients[i].Send(peers.Get(fmt.Sprintf("/%d", i+1)))
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if u := m.Stats().Upstreams[0]; u.Guard.Queued != 3 || u.LongestWait != 30*time.Millisecond {
			t.Errorf("%d queued, the longest for %v, want 3 and 30ms", u.Guard.Queued, u.LongestWait)
		}
		for _, c := range clients {
			c.Want(200, "ok")
		}
		if u := m.Stats().Upstreams[0]; u.Guard.Queued != 0 || u.LongestWait != 0 {
			t.Errorf("%d queued, the longest for %v, want none", u.Guard.Queued, u.LongestWait)
		}
		var sent []string
		for i := range m.Up.Sends() {
			sent = append(sent, strings.Fields(m.Up.Head(i))[1])
		}
		if got, want := strings.Join(sent, " "), "/1 /4 /3 /2"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}
