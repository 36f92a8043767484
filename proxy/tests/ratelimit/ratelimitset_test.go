package ratelimit

import (
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func getFor(path, key string) string {
	return strings.Replace(peers.Get(path), "\r\n\r\n", "\r\nX-Key: "+key+"\r\n\r\n", 1)
}

// Each kind gets requests, of which the first few share the rate limit of one per minute.
func TestRequestsThatShareAKeyedRateLimit(t *testing.T) {
	withRoute := func(by, other admission.Sharing) func(c *proxy.Config) {
		return func(c *proxy.Config) {
			peers.Rationed("1/m", 0)(c)
			c.Default.RateLimit.SharedBy = by
			r := c.Default
			r.Name, r.Match.Path, r.RateLimit.SharedBy = "r", "/r", other
			c.Routes = []proxy.Route{r}
		}
	}
	type step struct {
		request string
		status  int
	}
	for name, tc := range map[string]struct {
		change func(c *proxy.Config)
		steps  []step
	}{
		"upstream": {withRoute(admission.Sharing{}, admission.Sharing{}), []step{{getFor("/", "a"), 200}, {getFor("/", "b"), 429}, {peers.Get("/r"), 429}}},
		"route":    {withRoute(admission.Sharing{Route: true}, admission.Sharing{Route: true}), []step{{getFor("/", "a"), 200}, {getFor("/", "b"), 429}, {peers.Get("/r"), 200}, {peers.Get("/r"), 429}}},
		"header": {withRoute(admission.Sharing{Header: "X-Key"}, admission.Sharing{Header: "x-key"}), []step{
			{getFor("/", "a"), 200}, {getFor("/", "a"), 429}, {getFor("/r", "a"), 429}, {getFor("/", "A"), 200}, {getFor("/", ""), 200}, {getFor("/", ""), 429},
			{peers.Get("/"), 200}, {peers.Get("/r"), 429}, {peers.Get("/"), 429}, {getFor("/r", "b"), 200}, {getFor("/", "b"), 429}}},
		"another header": {withRoute(admission.Sharing{Header: "X-Key"}, admission.Sharing{Header: "X-Other"}), []step{{getFor("/", "a"), 200}, {getFor("/r", "a"), 200}, {getFor("/r", "b"), 429}}},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, peers.Script(peers.OK200), tc.change, func(t *testing.T, m *proxytest.Memory) {
				for i, s := range tc.steps {
					m.Client().Send(s.request).Want(s.status, "*")
					if i == 0 { // which makes no slots
						if err := m.Reload(m.Config); err != nil {
							t.Fatal(err)
						}
					}
				}
				all := m.Stats().RateLimits
				if len(all) != 1 {
					t.Fatalf("%d rate limits of one upstream and rate: %+v", len(all), all)
				}
				sent := 0
				for _, s := range tc.steps {
					if s.status == 200 {
						sent++
					}
				}
				if q := all[0]; q.State.Own != uint64(sent) || q.Waiting != 0 {
					t.Errorf("%+v, %d were sent", q, sent)
				}
			})
		})
	}
}
