package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/settings"
)

// spare gives the route fallbacks with these scripts, and no retries.
func spare(scripts ...[]step) func(s *served, c *settings.Config) {
	return func(s *served, c *settings.Config) {
		c.Default.Policy.MaxRetries = 0
		for i, steps := range scripts {
			c.Default.Fallbacks = append(c.Default.Fallbacks, settings.Fallback{Upstream: s.upstream([]string{"spare ", "second spare "}[i], steps...)})
		}
	}
}

func fixed(status int, body string) func(s *served, c *settings.Config) {
	return func(s *served, c *settings.Config) {
		c.Default.Policy.MaxRetries = 0
		c.Default.Fallbacks = []settings.Fallback{{Status: status, Body: []byte(body)}}
	}
}

func TestFallbacks(t *testing.T) {
	busy := answer(503, "busy")
	runAll(t, []example{
		{"no fallback is needed", spare(nil), get(), []step{{ok200}},
			"0s GET /a, ok 200 after 0s, 0s done 200 success 1",
			got(200, "ok", 1)},
		{"in place of a failure", spare([]step{{ok200}}), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s spare GET /a, 0s done 200 fallback 1",
			got(200, "ok", 1, because("retries_off"), "X-Retryproxy-Fallback: upstream")},
		{"in place of no response", spare([]step{{ok200}}), with("PUT", "body"), []step{{closes}},
			"0s PUT /a body, unknown 0 after 0s, 0s spare PUT /a body, 0s done 200 fallback 1",
			got(200, "ok", 1, because("retries_off"), "X-Retryproxy-Fallback: upstream")},
		{"none for what is unsafe", spare(nil), with("POST", "body"), []step{{busy}},
			"0s POST /a body, unknown 503 after 0s, 0s done 503 gave_up_not_idempotent 1",
			got(503, "busy", 1, because("not_idempotent"), "X-Should-Retry: false")},
		{"for what was not sent", spare([]step{{ok200}}), with("POST", "body"), []step{{refuses}},
			"0s refused, not_sent 0 after 0s, 0s spare POST /a body, 0s done 200 fallback 1",
			got(200, "ok", 1, because("retries_off"), "X-Retryproxy-Fallback: upstream")},
		{"fails", spare([]step{{answer(500, "worse")}}), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s spare GET /a, fallback failed, 0s done 503 gave_up_retries_off 1",
			got(503, "busy", 1, because("retries_off"))},
		{"fails without a response", spare([]step{{closes}}), get(), []step{{closes}},
			"0s GET /a, unknown 0 after 0s, 0s spare GET /a, fallback failed, 0s done 502 gave_up_retries_off 1",
			own(502, "the upstream closed the connection before it responded", 1, "retries_off")},
		{"two", spare([]step{{answer(500, "worse")}}, []step{{ok200}}), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s spare GET /a, fallback failed, 0s second spare GET /a, 0s done 200 fallback 1",
			got(200, "ok", 1, because("retries_off"), "X-Retryproxy-Fallback: upstream")},
		{"two fail", spare([]step{{answer(500, "worse")}}, []step{{refuses}}), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s spare GET /a, fallback failed, 0s second spare refused, fallback failed, 0s done 503 gave_up_retries_off 1",
			got(503, "busy", 1, because("retries_off"))},
		{"the second not after an unsafe send", spare([]step{{closes}}, nil), with("POST", "body"), []step{{refuses}},
			"0s refused, not_sent 0 after 0s, 0s spare POST /a body, fallback failed, 0s done 502 gave_up_retries_off 1",
			own(502, "the upstream could not be reached", 1, "retries_off", "X-Should-Retry: false")},
		{"none that an unsafe send may repeat", spare([]step{{closes}}), with("POST", "body"), []step{{answer(429, "busy", "X-Should-Retry: true")}},
			"0s POST /a body, rejected 429 after 0s, 0s spare POST /a body, fallback failed, 0s done 429 gave_up_retries_off 1",
			got(429, "busy", 1, because("retries_off"), "X-Should-Retry: false")},
		{"of ours after an unsafe send", func(s *served, c *settings.Config) {
			spare([]step{{closes}})(s, c)
			c.Default.Fallbacks = append(c.Default.Fallbacks, settings.Fallback{Status: 503, Body: []byte("later")})
		}, with("POST", "body"), []step{{refuses}},
			"0s refused, not_sent 0 after 0s, 0s spare POST /a body, fallback failed, 0s done 503 fallback 1",
			"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: retries_off\r\nX-Should-Retry: false\r\nX-Retryproxy-Fallback: answer\r\n\r\nlater"},
		{"the client may retry what no fallback took", spare([]step{{refuses}}, []step{{answer(429, "busy")}}), with("POST", "body"), []step{{refuses}},
			"0s refused, not_sent 0 after 0s, 0s spare refused, fallback failed, 0s second spare POST /a body, fallback failed, 0s done 502 gave_up_retries_off 1",
			own(502, "the upstream could not be reached", 1, "retries_off")},
		{"the second after an account that is used up", spare([]step{{errorOf(403, `{"error":{"code":"insufficient_quota"}}`)}}, []step{{ok200}}), with("POST", "body"), []step{{refuses}},
			"0s refused, not_sent 0 after 0s, 0s spare POST /a body, fallback failed, 0s second spare POST /a body, 0s done 200 fallback 1",
			got(200, "ok", 1, because("retries_off"), "X-Retryproxy-Fallback: upstream")},
		{"is slow", spare([]step{{time.Minute}}), get(), []step{{time.Minute}},
			"0s GET /a, unknown 0 after 27s, 27s spare GET /a, fallback failed, 30s done 504 gave_up_retries_off 1",
			own(504, "the upstream did not respond in time", 1, "retries_off")},
		{"does not wait for a slow failure", spare([]step{{ok200}}), get(), []step{{slowHead, 10 * time.Second, "rest"}},
			"0s GET /a, unknown 503 after 250ms, 500ms spare GET /a, 500ms done 200 fallback 1",
			got(200, "ok", 1, because("retries_off"), "X-Retryproxy-Fallback: upstream")},
		{"fails after a slow failure", spare([]step{{time.Second, closes}}), get(), []step{{slowHead, 10 * time.Second, "rest"}},
			"0s GET /a, unknown 503 after 250ms, 500ms spare GET /a, fallback failed, 10s done 503 gave_up_retries_off 1",
			got(503, "slowrest", 1, because("retries_off"))},
		{"of ours", fixed(200, `{"a":1}`), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s done 200 fallback 1",
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: retries_off\r\nX-Retryproxy-Fallback: answer\r\n\r\n{\"a\":1}"},
		{"of ours as a page", fixed(503, "<p>"), with("POST", "body"), []step{{busy}},
			"0s POST /a body, unknown 503 after 0s, 0s done 503 fallback 1",
			"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 3\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: not_idempotent\r\nX-Should-Retry: false\r\nX-Retryproxy-Fallback: answer\r\n\r\n<p>"},
		{"of ours as text", fixed(200, "hello"), get(), []step{{refuses}},
			"0s refused, not_sent 0 after 0s, 0s done 200 fallback 1",
			"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: retries_off\r\nX-Retryproxy-Fallback: answer\r\n\r\nhello"},
		{"of ours and empty", fixed(200, ""), get(), []step{{closes}},
			"0s GET /a, unknown 0 after 0s, 0s done 200 fallback 1",
			"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 0\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: retries_off\r\nX-Retryproxy-Fallback: answer\r\n\r\n"},
		{"for an account that is used up", spare([]step{{ok200}}), with("POST", "body"), []step{{errorOf(403, `{"error":{"code":"insufficient_quota"}}`)}},
			"0s POST /a body, rejected 403 after 0s, 0s spare POST /a body, 0s done 200 fallback 1",
			got(200, "ok", 1, because("quota_exhausted"), "X-Retryproxy-Fallback: upstream")},
		{"whose account is used up", spare([]step{{errorOf(403, `{"error":{"code":"insufficient_quota"}}`)}}), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s spare GET /a, fallback failed, 0s done 503 gave_up_retries_off 1",
			got(503, "busy", 1, because("retries_off"))},
		{"not for an account that works", spare(nil), get(), []step{{errorOf(403, `{"error":{"code":"no"}}`)}},
			"0s GET /a, ok 403 after 0s, 0s done 403 success 1",
			"HTTP/1.1 403 X\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 23\r\nX-Retryproxy-Attempts: 1\r\n\r\n{\"error\":{\"code\":\"no\"}}"},
		{"does not get a body that is too large", func(s *served, c *settings.Config) {
			spare(nil)(s, c)
			c.Default.RetryBufferBytes = 3
		}, with("PUT", "body"), []step{{busy}},
			"0s PUT /a body, unknown 503 after 0s, 0s done 503 gave_up_retries_off 1",
			got(503, "busy", 1, because("retries_off"))},
		{"does not get what cannot be kept", func(s *served, c *settings.Config) {
			spare(nil)(s, c)
			c.Default.ResponseBufferBytes = 3
		}, get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s done 503 gave_up_retries_off 1",
			got(503, "busy", 1, because("retries_off"))},
	})
}

// An account that is used up is not asked again.
func TestAnAccountThatIsUsedUpIsLeftOut(t *testing.T) {
	usedUp := errorOf(403, `{"error":{"code":"insufficient_quota"}}`)
	inMemory(t, []step{{usedUp}}, spare([]step{{ok200}, {ok200}}), func(s *served) {
		s.serve(get("Authorization: Bearer a"))
		s.serve(get("Authorization: Bearer a"))
		headers := []string{because("quota_exhausted"), "X-Retryproxy-Fallback: upstream"}
		s.wants("0s GET /a, rejected 403 after 0s, 0s spare GET /a, 0s done 200 fallback 1, 0s spare GET /a, 0s done 200 fallback 0",
			got(200, "ok", 1, headers...)+strings.Replace(got(200, "ok", 0, headers...), "X-Retryproxy-Attempts: 0\r\n", "", 1))
	})
}

// Whether a request may be repeated says nothing about the next one of its connection.
func TestTheNextRequestMayBeRepeated(t *testing.T) {
	busy := answer(429, "busy")
	inMemory(t, []step{{busy}, {busy}}, spare([]step{{closes}, {answer(500, "worse")}}), func(s *served) {
		s.serve(with("POST", "body"))
		s.serve(get())
		s.wants("0s POST /a body, rejected 429 after 0s, 0s spare POST /a body, fallback failed, 0s done 429 gave_up_retries_off 1, "+
			"0s GET /a, rejected 429 after 0s, 0s spare GET /a, fallback failed, 0s done 429 gave_up_retries_off 1",
			got(429, "busy", 1, because("retries_off"), "X-Should-Retry: false")+got(429, "busy", 1, because("retries_off")))
	})
}
