package exchange

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

const slowHead = "HTTP/1.1 503 X\r\nContent-Length: 8\r\n\r\nslow"

// errorOf is a response in JSON.
func errorOf(status int, body string, lines ...string) string {
	return answer(status, body, append(lines, "Content-Type: application/json; charset=utf-8")...)
}

// A failed response is kept while a better one is sought, as far as it came in time and there is room.
func TestAFailedResponseIsBuffered(t *testing.T) {
	oneRetry := func(_ *served, c *settings.Config) { c.Default.Policy.MaxRetries = 1 }
	room := func(n int64) func(*served, *settings.Config) {
		return func(_ *served, c *settings.Config) { c.Default.ResponseBufferBytes = n }
	}
	runAll(t, []example{
		{"its rest is not waited for", nil, get(), []step{{slowHead, 10 * time.Second, "rest"}, {ok200}},
			"0s GET /a, unknown 503 after 250ms, waited 1s, retry status_503, 1.25s GET /a, ok 200 after 0s, 1.25s done 200 recovered 2",
			got(200, "ok", 2)},
		{"its rest comes in time", nil, get(), []step{{slowHead, 200 * time.Millisecond, "rest"}, {ok200}},
			"0s GET /a, unknown 503 after 200ms, waited 1s, retry status_503, 1.2s GET /a, ok 200 after 0s, 1.2s done 200 recovered 2",
			got(200, "ok", 2)},
		{"its rest is relayed", oneRetry, get(), []step{{slowHead, 10 * time.Second, "rest"}, {closes}},
			"0s GET /a, unknown 503 after 250ms, waited 1s, retry status_503, 1.25s GET /a, unknown 0 after 0s, 10s done 503 gave_up_retries_exhausted 2",
			got(503, "slowrest", 2, because("retries_exhausted"))},
		{"its rest is cut off", oneRetry, get(), []step{{slowHead, 10 * time.Second, closes}, {closes}},
			"0s GET /a, unknown 503 after 250ms, waited 1s, retry status_503, 1.25s GET /a, unknown 0 after 0s, 10s done 503 response_broken 2, closed",
			"HTTP/1.1 503 X\r\nContent-Length: 8\r\nX-Retryproxy-Attempts: 2\r\nX-Retryproxy-Reason: retries_exhausted\r\n\r\nslow"},
		{"it is cut off", oneRetry, get(), []step{{slowHead, closes}, {closes}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, unknown 0 after 0s, 1s done 503 response_broken 2, closed",
			"HTTP/1.1 503 X\r\nContent-Length: 8\r\nX-Retryproxy-Attempts: 2\r\nX-Retryproxy-Reason: retries_exhausted\r\n\r\nslow"},
		{"a later one takes its place", oneRetry, get(), []step{{slowHead, 10 * time.Second, "rest"}, {answer(502, "bad")}},
			"0s GET /a, unknown 503 after 250ms, waited 1s, retry status_503, 1.25s GET /a, unknown 502 after 0s, 1.25s done 502 gave_up_retries_exhausted 2",
			got(502, "bad", 2, because("retries_exhausted"))},
		{"chunks", oneRetry, get(), []step{{"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nT: u\r\n\r\n"}, {closes}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, unknown 0 after 0s, 1s done 503 gave_up_retries_exhausted 2",
			"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\nX-Retryproxy-Reason: retries_exhausted\r\n\r\n3\r\nabc\r\n0\r\nT: u\r\n\r\n"},
		{"until the connection closes", oneRetry, get(), []step{{"HTTP/1.1 503 X\r\n\r\nabc", closes}, {closes}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, unknown 0 after 0s, 1s done 503 gave_up_retries_exhausted 2",
			"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\nX-Retryproxy-Reason: retries_exhausted\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{"to HTTP/1.0", oneRetry, "GET /a HTTP/1.0\r\nX-Request-Id: id\r\n\r\n", []step{{"HTTP/1.1 503 X\r\n\r\nabc", closes}, {closes}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, unknown 0 after 0s, 1s done 503 gave_up_retries_exhausted 2, closed",
			"HTTP/1.1 503 X\r\nX-Retryproxy-Attempts: 2\r\nX-Retryproxy-Reason: retries_exhausted\r\nConnection: close\r\n\r\nabc"},
		{"larger than announced", room(7), get(), []step{{slowHead + "rest"}},
			"0s GET /a, unknown 503 after 0s, 0s done 503 gave_up_response_too_large 1",
			got(503, "slowrest", 1, because("response_too_large"))},
		{"as large as the room", room(8), get(), []step{{slowHead + "rest"}, {ok200}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, ok 200 after 0s, 1s done 200 recovered 2",
			got(200, "ok", 2)},
		{"chunks larger than the room", room(2), get(), []step{{"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}},
			"0s GET /a, unknown 503 after 0s, 0s done 503 gave_up_response_too_large 1",
			"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: response_too_large\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{"chunks as large as the room", room(3), get(), []step{{"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}, {ok200}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, ok 200 after 0s, 1s done 200 recovered 2",
			got(200, "ok", 2)},
	})
}

// The body of a failed response may ask for a wait, or say that a retry is in vain.
func TestTheBodyOfAFailedResponseIsRead(t *testing.T) {
	const wait = `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"9s"}]}}`
	runAll(t, []example{
		{"a wait", waits(0), get(), []step{{errorOf(429, wait)}, {ok200}},
			"0s GET /a, rejected 429 after 0s, waited 9s, retry status_429, 9s GET /a, ok 200 after 0s, 9s done 200 recovered 2",
			got(200, "ok", 2)},
		{"longer than the header's", waits(0), get(), []step{{errorOf(429, wait, "Retry-After: 3")}, {ok200}},
			"0s GET /a, rejected 429 after 0s, waited 9s, retry status_429, 9s GET /a, ok 200 after 0s, 9s done 200 recovered 2",
			got(200, "ok", 2)},
		{"shorter than the header's", waits(0), get(), []step{{errorOf(429, wait, "Retry-After: 12")}, {ok200}},
			"0s GET /a, rejected 429 after 0s, waited 12s, retry status_429, 12s GET /a, ok 200 after 0s, 12s done 200 recovered 2",
			got(200, "ok", 2)},
		{"too long", waits(0), get(), []step{{errorOf(429, `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"99s"}]}}`)}},
			"0s GET /a, rejected 429 after 0s, 0s done 429 gave_up_retry_after_too_long 1",
			"HTTP/1.1 429 X\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 95\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: retry_after_too_long\r\nX-Should-Retry: false\r\n\r\n{\"error\":{\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"99s\"}]}}"},
		{"used up", waits(0), get(), []step{{errorOf(429, `{"error":{"code":"insufficient_quota"}}`)}},
			"0s GET /a, rejected 429 after 0s, 0s done 429 gave_up_quota_exhausted 1",
			"HTTP/1.1 429 X\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 39\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: quota_exhausted\r\nX-Should-Retry: false\r\n\r\n{\"error\":{\"code\":\"insufficient_quota\"}}"},
		{"too large a request", waits(0), get(), []step{{errorOf(429, `{"error":{"message":"Request too large for model"}}`)}, {ok200}},
			"0s GET /a, rejected 429 after 0s, 0s done 429 gave_up_request_too_large 1",
			"HTTP/1.1 429 X\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 51\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: request_too_large\r\nX-Should-Retry: false\r\n\r\n{\"error\":{\"message\":\"Request too large for model\"}}"},
		{"a text", waits(0), get(), []step{{answer(429, "Rate limit reached, try again in 6s", "Content-Type: text/plain")}, {ok200}},
			"0s GET /a, rejected 429 after 0s, waited 6s, retry status_429, 6s GET /a, ok 200 after 0s, 6s done 200 recovered 2",
			got(200, "ok", 2)},
		{"a picture", waits(0), get(), []step{{answer(429, wait, "Content-Type: image/png")}, {ok200}},
			"0s GET /a, rejected 429 after 0s, waited 0s, retry status_429, 0s GET /a, ok 200 after 0s, 0s done 200 recovered 2",
			got(200, "ok", 2)},
		{"a text with another status", waits(0), get(), []step{{answer(504, "try again in 6s", "Content-Type: text/plain")}, {ok200}},
			"0s GET /a, unknown 504 after 0s, waited 6s, retry status_504, 6s GET /a, ok 200 after 0s, 6s done 200 recovered 2",
			got(200, "ok", 2)},
	})
}

func TestMediaTypes(t *testing.T) {
	for name, c := range map[string]struct{ errorText, plainJSON, events bool }{
		"":                                   {true, false, false},
		"Content-Type: text/plain":           {true, false, false},
		"Content-Type: TEXT/html; a=b":       {true, false, false},
		"Content-Type: text/":                {false, false, false},
		"Content-Type: application/json":     {true, true, false},
		"Content-Type: a/problem+json":       {true, true, false},
		"Content-Type: +json":                {false, false, false},
		"Content-Type: text/json ; a=b":      {true, true, false},
		"Content-Type: application/x-ndjson": {true, false, false},
		"Content-Type: text/event-stream":    {true, false, true},
		"Content-Type: image/png":            {false, false, false},
		"Content-Type: application/json\r\nContent-Encoding: gzip":     {true, false, false},
		"Content-Type: application/json\r\nContent-Encoding: Identity": {true, true, false},
	} {
		r := &http1.Response{}
		text := "HTTP/1.1 200 X\r\n" + name + "\r\n\r\n"
		if name == "" {
			text = "HTTP/1.1 200 X\r\n\r\n"
		}
		if n, err := r.Parse([]byte(text), http1.Limits{HeaderBytes: 1 << 10, Headers: 10}, []byte("GET")); n != len(text) || err != nil {
			t.Fatal(name, n, err)
		}
		if isErrorText(r) != c.errorText || isPlainJSON(r) != c.plainJSON || isEventStream(r) != c.events {
			t.Errorf("%q: %v %v %v", name, isErrorText(r), isPlainJSON(r), isEventStream(r))
		}
	}
}
