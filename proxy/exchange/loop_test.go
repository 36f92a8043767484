package exchange

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

const ok200 = "HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\nok"

func waits(d time.Duration) func(s *served, c *settings.Config) {
	return func(s *served, c *settings.Config) { c.Default.Policy.Backoff = backoff.Fixed{Base: d} }
}

// listed is a route that retries after these failures only.
func listed(failures string) func(s *served, c *settings.Config) {
	return func(s *served, c *settings.Config) {
		on, err := policy.ParseRetryOn(failures)
		if err != nil {
			s.Fatal(err)
		}
		c.Default.Policy.RetryOn = on
	}
}

func TestTheLoop(t *testing.T) {
	busy := answer(503, "busy")
	notIdempotent := got(503, "busy", 1, because("not_idempotent"), "X-Should-Retry: false")
	runAll(t, []example{
		{"success", nil, get(), []step{{ok200}},
			"0s GET /a, ok 200 after 0s, 0s done 200 success 1",
			got(200, "ok", 1)},
		{"a failure that is retried", nil, get(), []step{{busy}, {ok200}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, ok 200 after 0s, 1s done 200 recovered 2",
			got(200, "ok", 2)},
		{"all retries fail", nil, get(), []step{{busy}, {busy}, {busy}, {answer(502, "last")}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 2s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 3s GET /a, unknown 502 after 0s, 3s done 502 gave_up_retries_exhausted 4",
			got(502, "last", 4, because("retries_exhausted"))},
		{"the last responses are lost", nil, get(), []step{{busy}, {closes}, {closes}, {closes}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, unknown 0 after 0s, waited 1s, retry reset, 2s GET /a, unknown 0 after 0s, waited 1s, retry reset, 3s GET /a, unknown 0 after 0s, 3s done 503 gave_up_retries_exhausted 4",
			got(503, "busy", 4, because("retries_exhausted"))},
		{"the body is replayed", nil, with("PUT", "body"), []step{{time.Second, closes}, {ok200}},
			"0s PUT /a body, unknown 0 after 1s, waited 1s, retry reset, 2s PUT /a body, ok 200 after 0s, 2s done 200 recovered 2",
			got(200, "ok", 2)},
		{"no response at all", nil, get(), []step{{closes}, {closes}, {closes}, {closes}},
			"0s GET /a, unknown 0 after 0s, waited 1s, retry reset, 1s GET /a, unknown 0 after 0s, waited 1s, retry reset, 2s GET /a, unknown 0 after 0s, waited 1s, retry reset, 3s GET /a, unknown 0 after 0s, 3s done 502 gave_up_retries_exhausted 4",
			own(502, "the upstream closed the connection before it responded", 4, "retries_exhausted")},
		{"not idempotent", nil, with("POST", "body"), []step{{busy}},
			"0s POST /a body, unknown 503 after 0s, 0s done 503 gave_up_not_idempotent 1",
			notIdempotent},
		{"with a key", nil, with("POST", "body", "Idempotency-Key: 1"), []step{{busy}, {ok200}},
			"0s POST /a body, unknown 503 after 0s, waited 1s, retry status_503, 1s POST /a body, ok 200 after 0s, 1s done 200 recovered 2",
			got(200, "ok", 2)},
		{"refused", nil, with("POST", "body"), []step{{refuses}, {refuses}, {ok200}},
			"0s refused, not_sent 0 after 0s, waited 1s, retry connect_failure, 1s refused, not_sent 0 after 0s, waited 1s, retry connect_failure, 2s POST /a body, ok 200 after 0s, 2s done 200 recovered 3",
			got(200, "ok", 3)},
		{"always refused", nil, with("POST", "body"), []step{{refuses}, {refuses}, {refuses}, {refuses}},
			"0s refused, not_sent 0 after 0s, waited 1s, retry connect_failure, 1s refused, not_sent 0 after 0s, waited 1s, retry connect_failure, 2s refused, not_sent 0 after 0s, waited 1s, retry connect_failure, 3s refused, not_sent 0 after 0s, 3s done 502 gave_up_retries_exhausted 4, closed",
			own(502, "the upstream could not be reached", 4, "retries_exhausted", "Connection: close")},
		{"a dial that does not end", func(_ *served, c *settings.Config) { c.Default.DialTimeout = 3 * time.Second }, with("POST", "body"), []step{{hangs}, {ok200}},
			"not_sent 0 after 3s, waited 1s, retry connect_failure, 4s POST /a body, ok 200 after 0s, 4s done 200 recovered 2",
			got(200, "ok", 2)},
		{"dials that do not end", func(_ *served, c *settings.Config) {
			c.Default.DialTimeout, c.Default.Policy.MaxRetries = 3*time.Second, 0
		}, with("POST", "body"), []step{{hangs}},
			"not_sent 0 after 3s, 3s done 504 gave_up_retries_off 1, closed",
			own(504, "the upstream could not be reached", 1, "retries_off", "Connection: close")},
		{"no descriptor is free for a while", nil, with("POST", "body"), []step{{fails}, {fails}, {ok200}},
			"0s has no descriptor, 5ms has no descriptor, 15ms POST /a body, ok 200 after 0s, 15ms done 200 success 1",
			got(200, "ok", 1)},
		{"no descriptor is free", func(_ *served, c *settings.Config) { c.Default.RequestTimeout = 10 * time.Millisecond }, get(), []step{{fails}, {fails}, {fails}, {fails}, {fails}, {fails}, {fails}, {fails}, {fails}},
			"0s has no descriptor, 5ms has no descriptor, not_sent 0 after 5ms, 10ms done 503 gave_up_no_descriptors 1, closed",
			"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 154\r\nRetry-After: 1\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: no_descriptors\r\nConnection: close\r\n\r\n{\"error\":\"retryproxy: no file descriptor is left for a connection to the upstream\",\"status\":503,\"reason\":\"no_descriptors\",\"attempts\":1,\"request_id\":\"id\"}\n"},
		{"a response that comes while the body is sent", then(time.Second, "body"), message("PUT", "Content-Length: 8") + "\r\nbody", []step{{early("HTTP/1.1 200 X\r\nContent-Length: 4\r\n\r\nab"), time.Second, "cd"}},
			"0s PUT /a, ok 200 after 20ms, 1s PUT /a bodybody, 2s done 200 success 1, closed",
			got(200, "abcd", 1, "Connection: close")},
		{"no such status", nil, get(), []step{{answer(404, "none")}},
			"0s GET /a, ok 404 after 0s, 0s done 404 success 1",
			got(404, "none", 1)},
		{"not listed", nil, get(), []step{{answer(501, "none")}},
			"0s GET /a, unknown 501 after 0s, 0s done 501 gave_up_not_in_retry_on 1",
			got(501, "none", 1)},
		{"not listed and lost", listed("503"), with("POST", "body"), []step{{closes}},
			"0s POST /a body, unknown 0 after 0s, 0s done 502 gave_up_not_in_retry_on 1",
			own(502, "the upstream closed the connection before it responded", 1, "not_in_retry_on", "X-Should-Retry: false")},
		{"not listed and refused", listed("503"), with("POST", "body"), []step{{refuses}},
			"0s refused, not_sent 0 after 0s, 0s done 502 gave_up_not_in_retry_on 1, closed",
			own(502, "the upstream could not be reached", 1, "not_in_retry_on", "Connection: close")},
		{"no wait", waits(0), get(), []step{{busy}, {ok200}},
			"0s GET /a, unknown 503 after 0s, waited 0s, retry status_503, 0s GET /a, ok 200 after 0s, 0s done 200 recovered 2",
			got(200, "ok", 2)},
		{"asks for a wait", waits(0), get(), []step{{answer(429, "", "Retry-After: 7")}, {ok200}},
			"0s GET /a, rejected 429 after 0s, waited 7s, retry status_429, 7s GET /a, ok 200 after 0s, 7s done 200 recovered 2",
			got(200, "ok", 2)},
		{"asks for too long a wait", nil, get(), []step{{answer(429, "", "Retry-After: 31")}},
			"0s GET /a, rejected 429 after 0s, 0s done 429 gave_up_retry_after_too_long 1",
			"HTTP/1.1 429 X\r\nRetry-After: 31\r\nContent-Length: 0\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: retry_after_too_long\r\n\r\n"},
		{"times out", nil, get(), []step{{time.Minute}, {ok200}},
			"0s GET /a, unknown 0 after 10s, waited 1s, retry attempt_timeout, 11s GET /a, ok 200 after 0s, 11s done 200 recovered 2",
			got(200, "ok", 2)},
		{"times out, not idempotent", nil, with("POST", "body"), []step{{12 * time.Second, ok200}},
			"0s POST /a body, ok 200 after 12s, 12s done 200 success 1",
			got(200, "ok", 1)},
		{"times out hard", func(_ *served, c *settings.Config) { c.Default.AttemptTimeoutHard = true }, with("POST", "body"), []step{{12 * time.Second, ok200}},
			"0s POST /a body, unknown 0 after 10s, 10s done 504 gave_up_not_idempotent 1",
			own(504, "the upstream did not respond in time", 1, "not_idempotent", "X-Should-Retry: false")},
		{"never responds", nil, with("POST", "body"), []step{{time.Minute}},
			"0s POST /a body, unknown 0 after 30s, 30s done 504 gave_up_not_idempotent 1",
			own(504, "the upstream did not respond in time", 1, "not_idempotent", "X-Should-Retry: false")},
		{"never responds to a GET", nil, get(), []step{{time.Minute}, {time.Minute}, {time.Minute}},
			"0s GET /a, unknown 0 after 10s, waited 1s, retry attempt_timeout, 11s GET /a, unknown 0 after 10s, waited 1s, retry attempt_timeout, 22s GET /a, unknown 0 after 8s, 30s done 504 gave_up_deadline 3",
			own(504, "the upstream did not respond in time", 3, "deadline")},
		{"HEAD", nil, message("HEAD") + "\r\n", []step{{"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\n"}, {"HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\n"}}, "0s HEAD /a, unknown 503 after 0s, waited 1s, retry status_503, 1s HEAD /a, ok 200 after 0s, 1s done 200 recovered 2", "HTTP/1.1 200 X\r\nContent-Length: 5\r\nX-Retryproxy-Attempts: 2\r\n\r\n"},
		{"an empty budget", withBudget(budget.Config{}), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s done 503 gave_up_budget_exhausted 1",
			got(503, "busy", 1, because("budget_exhausted"))},
		{"a budget", withBudget(budget.Config{Burst: 1}), get(), []step{{busy}, {busy}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, unknown 503 after 0s, 1s done 503 gave_up_budget_exhausted 2",
			got(503, "busy", 2, because("budget_exhausted"))},
		{"waits for the budget", queuesForBudget, get(), []step{{busy}, {ok200}},
			"0s GET /a, unknown 503 after 0s, queued 25s, 25s done 503 gave_up_budget_exhausted 1",
			got(503, "busy", 1, because("budget_exhausted"))},
		{"a wait that costs no budget", queuesForBudget, get(), []step{{answer(429, "", "Retry-After: 2")}, {answer(429, "", "Retry-After: 2")}, {ok200}},
			"0s GET /a, rejected 429 after 0s, waited 2s, retry status_429, 2s GET /a, rejected 429 after 0s, queued 23s, 25s done 429 gave_up_budget_exhausted 2",
			"HTTP/1.1 429 X\r\nRetry-After: 2\r\nContent-Length: 0\r\nX-Retryproxy-Attempts: 2\r\nX-Retryproxy-Reason: budget_exhausted\r\n\r\n"},
		{"dry run", dryRun, get(), []step{{busy}},
			"0s GET /a, would retry status_503, unknown 503 after 0s, 0s done 503 gave_up_dry_run 1",
			"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy"},
		{"dry run of what is not retried", dryRun, with("POST", "body"), []step{{busy}},
			"0s POST /a body, unknown 503 after 0s, 0s done 503 gave_up_not_idempotent 1",
			"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy"},
		{"dry run without budget", func(s *served, c *settings.Config) {
			dryRun(s, c)
			withBudget(budget.Config{})(s, c)
		}, get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s done 503 gave_up_budget_exhausted 1",
			"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy"},
		{"dry run of a large response", func(s *served, c *settings.Config) {
			dryRun(s, c)
			c.Default.ResponseBufferBytes = 3
		}, get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s done 503 gave_up_response_too_large 1",
			"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy"},
		{"dry run that fits", func(s *served, c *settings.Config) {
			dryRun(s, c)
			c.Default.ResponseBufferBytes = 4
		}, get(), []step{{busy}},
			"0s GET /a, would retry status_503, unknown 503 after 0s, 0s done 503 gave_up_dry_run 1",
			"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy"},
		{"dry run of a timeout", dryRun, get(), []step{{12 * time.Second, busy}},
			"0s GET /a, would retry attempt_timeout, unknown 503 after 12s, 12s done 503 gave_up_dry_run 1",
			"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy"},
		{"the body is larger than the buffer", func(_ *served, c *settings.Config) { c.Default.RetryBufferBytes = 3 }, with("PUT", "body"), []step{{busy}},
			"0s PUT /a body, unknown 503 after 0s, 0s done 503 gave_up_body_too_large 1",
			got(503, "busy", 1, because("body_too_large"))},
		{"the body fills the buffer", func(_ *served, c *settings.Config) { c.Default.RetryBufferBytes = 4 }, with("PUT", "body"), []step{{busy}, {ok200}},
			"0s PUT /a body, unknown 503 after 0s, waited 1s, retry status_503, 1s PUT /a body, ok 200 after 0s, 1s done 200 recovered 2",
			got(200, "ok", 2)},
		{"no room in the process", func(_ *served, c *settings.Config) { c.RetryBufferTotalBytes = 100 }, get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s done 503 gave_up_retry_buffer_full 1",
			got(503, "busy", 1, because("retry_buffer_full"))},
		{"the client's deadline", nil, get("X-Request-Timeout: 0.5"), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s done 503 gave_up_deadline 1",
			got(503, "busy", 1, because("deadline"))},
		{"an informational response", nil, get(), []step{{"HTTP/1.1 103 X\r\nLink: a\r\n\r\n" + ok200}},
			"0s GET /a, ok 200 after 0s, 0s done 200 success 1",
			"HTTP/1.1 103 X\r\nLink: a\r\n\r\nHTTP/1.1 200 X\r\nContent-Length: 2\r\nX-Retryproxy-Attempts: 1\r\n\r\nok"},
		{"a 100 that nobody waits for", nil, get(), []step{{"HTTP/1.1 100 X\r\n\r\n" + ok200}},
			"0s GET /a, ok 200 after 0s, 0s done 200 success 1",
			got(200, "ok", 1)},
		{"a 101 that nobody asked for", nil, with("POST", "body"), []step{{"HTTP/1.1 101 X\r\nUpgrade: b\r\n\r\n"}},
			"0s POST /a body, unknown 0 after 0s, 0s done 502 gave_up_not_idempotent 1",
			own(502, "the upstream sent a response that is not valid HTTP", 1, "not_idempotent", "X-Should-Retry: false")},
		{"too many headers", nil, with("POST", "body"), []step{{"HTTP/1.1 200 X\r\n" + strings.Repeat("A: b\r\n", 101) + "\r\n"}},
			"0s POST /a body, unknown 0 after 0s, 0s done 502 gave_up_not_idempotent 1",
			own(502, "the upstream sent response headers that are larger than the limit", 1, "not_idempotent", "X-Should-Retry: false")},
		{"Max-Forwards", nil, "OPTIONS * HTTP/1.1\r\nHost: a\r\nX-Request-Id: id\r\nMax-Forwards: 0\r\n\r\n", nil,
			"0s done 200 success 0",
			"HTTP/1.1 200 OK\r\nAllow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\nContent-Length: 0\r\n\r\n"},
		{"the client wants it closed", nil, get("Connection: close"), []step{{ok200}},
			"0s GET /a, ok 200 after 0s, 0s done 200 success 1, closed",
			got(200, "ok", 1, "Connection: close")},
		{"a layered retry", func(_ *served, c *settings.Config) { c.Default.LayeredRetries = policy.LayeredDeny }, get("X-Retryproxy-Attempt: 2"), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s done 503 gave_up_layered 1",
			got(503, "busy", 1, because("layered"), "X-Request-Id: id")},
	})
}

func withBudget(b budget.Config) func(s *served, c *settings.Config) {
	return func(_ *served, c *settings.Config) { c.Default.NoBudget, c.Default.Budget = false, b }
}

// queuesForBudget earns a token every five seconds.
func queuesForBudget(s *served, c *settings.Config) {
	withBudget(budget.Config{MinPerSecond: 0.2})(s, c)
	waits(0)(s, c)
	c.Default.Policy.QueueForBudget = true
}

func dryRun(_ *served, c *settings.Config) { c.Default.DryRun = true }

// An attempt that timed out and went on may be retried after all, and that retry has a timeout of its own.
func TestARetryOfAnAttemptThatWentOnTimesOut(t *testing.T) {
	var upstreams *served
	retriesAgain := func(net.Conn, io.Reader) { upstreams.process.SetRetryPercent(100) }
	inMemory(t, []step{{12 * time.Second, retriesAgain, answer(503, "busy")}, {time.Minute}, {ok200}}, nil, func(s *served) {
		upstreams = s
		s.process.SetRetryPercent(0)
		s.serve(get())
		s.wants("0s GET /a, unknown 503 after 12s, waited 1s, retry status_503, 13s GET /a, unknown 0 after 10s, waited 1s, retry attempt_timeout, 24s GET /a, ok 200 after 0s, 24s done 200 recovered 3",
			got(200, "ok", 3))
	})
}
