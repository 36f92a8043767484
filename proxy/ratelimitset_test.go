package proxy

import (
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/admission"
)

func getFor(path, key string) string {
	return strings.Replace(get(path), "\r\n\r\n", "\r\nX-Key: "+key+"\r\n\r\n", 1)
}

// Each kind gets requests, of which the first few share the rate limit of one per minute.
func TestRequestsThatShareAKeyedRateLimit(t *testing.T) {
	withRoute := func(by, other admission.Sharing) func(c *Config) {
		return func(c *Config) {
			rationed("1/m", 0)(c)
			c.Default.RateLimit.SharedBy = by
			r := c.Default
			r.Name, r.Match.Path, r.RateLimit.SharedBy = "r", "/r", other
			c.Routes = []Route{r}
		}
	}
	type step struct {
		request string
		status  int
	}
	for name, tc := range map[string]struct {
		change func(c *Config)
		steps  []step
	}{
		"upstream": {withRoute(admission.Sharing{}, admission.Sharing{}), []step{{getFor("/", "a"), 200}, {getFor("/", "b"), 429}, {get("/r"), 429}}},
		"route":    {withRoute(admission.Sharing{Route: true}, admission.Sharing{Route: true}), []step{{getFor("/", "a"), 200}, {getFor("/", "b"), 429}, {get("/r"), 200}, {get("/r"), 429}}},
		"header": {withRoute(admission.Sharing{Header: "X-Key"}, admission.Sharing{Header: "x-key"}), []step{
			{getFor("/", "a"), 200}, {getFor("/", "a"), 429}, {getFor("/r", "a"), 429}, {getFor("/", "A"), 200}, {getFor("/", ""), 200}, {getFor("/", ""), 429},
			{get("/"), 200}, {get("/r"), 429}, {get("/"), 429}, {getFor("/r", "b"), 200}, {getFor("/", "b"), 429}}},
		"another header": {withRoute(admission.Sharing{Header: "X-Key"}, admission.Sharing{Header: "X-Other"}), []step{{getFor("/", "a"), 200}, {getFor("/r", "a"), 200}, {getFor("/r", "b"), 429}}},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, script(ok200), tc.change, func(t *testing.T, m *memory) {
				for i, s := range tc.steps {
					m.client().send(s.request).want(s.status, "*")
					if i == 0 { // which makes no slots
						if err := m.Reload(m.config); err != nil {
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
