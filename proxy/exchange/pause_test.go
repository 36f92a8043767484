package exchange

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// pauses has all requests share the pause that a 429 asks for, and retries none of them.
func pauses(_ *served, c *settings.Config) {
	c.Default.Policy.MaxRetries = 0
	c.Default.RateLimitPause = settings.RateLimitPause{SharedBy: admission.Sharing{Route: true}, Max: time.Minute}
}

// What one request was asked to wait, the others wait too.
func TestAPauseIsShared(t *testing.T) {
	const s = time.Second
	retried := func(_ *served, c *settings.Config) { c.Default.Policy.MaxRetries = 1 }
	minute := answer(429, "", "Retry-After: 50")
	const inBody = `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"9s"}]}}`
	for _, c := range []struct {
		name   string
		change func(s *served, c *settings.Config)
		first  step
		second []step
		story  string        // of the second request, see served.outline
		waits  time.Duration // at least
	}{
		{"asked for by a header", pauses, step{answer(429, "", "Retry-After: 7")}, []step{{ok200}},
			"queued _, _ GET /a, ok 200 after _, _ done 200 success 1", 7 * s},
		{"asked for in the body", all(pauses, retried), step{errorOf(429, inBody)}, []step{{answer(503, "")}, {ok200}, {ok200}},
			"_ GET /a, ok 200 after _, _ done 200 success 1", 0},
		{"longer than the request has time", pauses, step{minute}, nil,
			"_ done 429 rate_limit_pause 0", 0},
		{"not of another status", pauses, step{answer(503, "", "Retry-After: 7")}, []step{{ok200}},
			"_ GET /a, ok 200 after _, _ done 200 success 1", 0},
		{"not without being shared", func(_ *served, c *settings.Config) { c.Default.Policy.MaxRetries = 0 }, step{answer(429, "", "Retry-After: 7")}, []step{{ok200}},
			"_ GET /a, ok 200 after _, _ done 200 success 1", 0},
		{"longer than allowed", pauses, step{answer(429, "", "Retry-After: 61")}, []step{{ok200}},
			"_ GET /a, ok 200 after _, _ done 200 success 1", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, append([]step{c.first}, c.second...), c.change, func(s *served) {
				s.serve(get())
				s.disconnect()
				s.connect()
				s.story = nil
				s.serve(get())
				if got, took := s.outline(), s.elapsed(); got != c.story || took < c.waits || took > 2*c.waits {
					s.Errorf("%q after %v", got, took)
				}
			})
		})
	}
}
