package exchange

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Whether the account at an upstream is used up, is told by the errors of the APIs. A second request with the
// same credential is not sent there then.
func TestWhenAnAccountIsUsedUp(t *testing.T) {
	const quota = `{"error":{"code":"insufficient_quota"}}`
	const denied = `{"error":{"type":"authentication_error","code":"invalid_api_key"}}`
	model := func(_ *served, c *settings.Config) { c.Default.ModelAPI = true }
	for _, c := range []struct {
		name   string
		change func(s *served, c *settings.Config)
		first  step
		after  time.Duration // until the second request
		asked  bool          // the second one is sent to the upstream
	}{
		{"a quota", nil, step{errorOf(429, quota)}, 0, false},
		{"a quota with another status", nil, step{errorOf(403, quota)}, 0, false},
		{"of a good response", nil, step{errorOf(200, quota)}, 0, true},
		{"a rate limit", nil, step{errorOf(429, `{"error":{"code":"rate_limit_exceeded"}}`)}, 0, true},
		{"no error that is known", nil, step{errorOf(403, `{"error":{"code":"no"}}`)}, 0, true},
		{"an error in a picture", nil, step{answer(403, quota, "Content-Type: image/png")}, 0, true},
		{"the client's own credential", nil, step{errorOf(401, denied)}, 0, true},
		{"payment is required", model, step{answer(402, "pay")}, 0, false},
		{"payment is required by another API", nil, step{answer(402, "pay")}, 0, true},
		{"a smaller request would do", model, step{errorOf(402, `{"error":{"message":"This request requires more credits, or fewer max_tokens."}}`)}, 0, true},
		{"a wait that has ended", nil, step{errorOf(429, quota, "Retry-After: 60")}, 2 * time.Minute, true},
		{"a wait that has not ended", nil, step{errorOf(429, quota, "Retry-After: 60")}, time.Minute / 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := false
			steps := []step{c.first, {ok200}}
			change := spare([]step{{ok200}, {ok200}, {ok200}})
			if c.change != nil {
				change = all(change, c.change)
			}
			inMemory(t, steps, change, func(s *served) {
				s.serve(with("POST", "body", "Authorization: Bearer a"))
				s.disconnect()
				time.Sleep(c.after)
				s.connect()
				s.story = nil
				s.serve(with("POST", "body", "Authorization: Bearer a"))
				for _, what := range s.story {
					asked = asked || what == "0s POST /a body"
				}
				if asked != c.asked {
					s.Errorf("%q", s.story)
				}
			})
		})
	}
}
