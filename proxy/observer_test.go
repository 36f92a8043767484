package proxy

import (
	"testing"
	"testing/synctest"
)

// Everything about a request, its fallback included, is told whom the route
// gave when it began, and nothing to the observer of another.
func TestARequestHasOneObserverFromBeginningToEnd(t *testing.T) {
	var given []*recorder
	inMemoryWithFallback(t, script(bad503), script(bad503), func(c *Config) {
		c.Default.Policy.MaxRetries = 1
		c.Observe = func(string) func() Observer {
			return func() Observer {
				given = append(given, &recorder{})
				return given[len(given)-1]
			}
		}
	}, func(t *testing.T, m *memory, _ *fallbackServer) {
		c := m.client()
		for range 3 {
			c.send(get("/")).want(503, "busy")
		}
		c.send("GET / HTTP/1.1\r\nHost : a\r\n\r\n").want(400, "*") // not routed
		synctest.Wait()
		if len(given) != 4 {
			t.Errorf("%d observers for 4 requests", len(given))
			return
		}
		for i, r := range given[:3] {
			if r.began != 1 || len(r.classes) != 2 || len(r.retries) != 1 || len(r.waits) != 1 || r.fallbackFailures != 1 || len(r.outcomes) != 1 {
				t.Errorf("request %d: began %d, attempts %v, retries %v, waits %v, fallbacks failed %d, outcomes %v",
					i, r.began, r.classes, r.retries, r.waits, r.fallbackFailures, r.outcomes)
			}
		}
		if r := given[3]; r.began != 1 || len(r.outcomes) != 1 {
			t.Errorf("refused: began %d, outcomes %v", r.began, r.outcomes)
		}
	})
}
