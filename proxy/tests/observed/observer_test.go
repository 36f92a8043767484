package observed

import (
	"testing"
	"testing/synctest"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// Everything about a request, its fallback included, is told whom the route
// gave when it began, and nothing to the observer of another.
func TestARequestHasOneObserverFromBeginningToEnd(t *testing.T) {
	var given []*peers.Recorder
	proxytest.InMemoryWithFallback(t, peers.Script(peers.Bad503), peers.Script(peers.Bad503), func(c *proxy.Config) {
		c.Default.Policy.MaxRetries = 1
		c.Observe = func(string) func() proxy.Observer {
			return func() proxy.Observer {
				given = append(given, &peers.Recorder{})
				return given[len(given)-1]
			}
		}
	}, func(t *testing.T, m *proxytest.Memory, _ *peers.FallbackServer) {
		c := m.Client()
		for range 3 {
			c.Send(peers.Get("/")).Want(503, "busy")
		}
		c.Send("GET / HTTP/1.1\r\nHost : a\r\n\r\n").Want(400, "*") // not routed
		synctest.Wait()
		if len(given) != 4 {
			t.Errorf("%d observers for 4 requests", len(given))
			return
		}
		for i, r := range given[:3] {
			if r.Began != 1 || len(r.Classes) != 2 || len(r.Retries) != 1 || len(r.Waits) != 1 || r.FallbackFailures != 1 || len(r.Outcomes) != 1 {
				t.Errorf("request %d: began %d, attempts %v, retries %v, waits %v, fallbacks failed %d, outcomes %v",
					i, r.Began, r.Classes, r.Retries, r.Waits, r.FallbackFailures, r.Outcomes)
			}
		}
		if r := given[3]; r.Began != 1 || len(r.Outcomes) != 1 {
			t.Errorf("refused: began %d, outcomes %v", r.Began, r.Outcomes)
		}
	})
}
