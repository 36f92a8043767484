package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/settings"
)

func countsTokens(_ *served, c *settings.Config) { c.Default.CountTokens = true }

// What a response says that it used is counted, by what became of it.
func TestTokensAreCounted(t *testing.T) {
	const s = time.Second
	used := errorOf(200, `{"usage":{"prompt_tokens":3,"completion_tokens":5}}`)
	usage := "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}\n\n"
	runAll(t, []example{
		{"delivered", countsTokens, get(), []step{{used}},
			"0s GET /a, ok 200 after 0s, tokens {3 0 5} delivered, 0s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 51\r\nX-Retryproxy-Attempts: 1\r\n\r\n{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}"},
		{"a stream", countsTokens, get(), []step{{events + content + usage, closes}},
			"0s GET /a, ok 200 after 0s, tokens {3 0 5} delivered, 0s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n55\r\ndata: hello\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}\n\n\r\n0\r\n\r\n"},
		{"a stream that is cut off", countsTokens, get(), []step{{chunked(content, usage), closes}},
			"0s GET /a, ok 200 after 0s, tokens {3 0 5} wasted, 0s done 200 stream_cut 1, closed",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\nd\r\ndata: hello\n\n\r\n48\r\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}\n\n\r\n"},
		{"a stream that failed before its content", all(countsTokens, held), get(), []step{{events + strings.Replace(usage, "[]", "[{\"delta\":{}}]", 1) + failure, closes}, {used}},
			"0s GET /a, unknown 529 after 0s, tokens {3 0 5} retried, waited 1s, retry status_other, 1s GET /a, ok 200 after 0s, tokens {3 0 5} delivered, 1s done 200 recovered 2",
			"HTTP/1.1 200 X\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 51\r\nX-Retryproxy-Attempts: 2\r\n\r\n{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}"},
		{"the client left", all(countsTokens, then(s, closes)), get(), []step{{chunked(content, usage), 3 * s, closes}},
			"0s GET /a, ok 200 after 0s, tokens {3 0 5} wasted, 1s done 200 client_gone 1, reset",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\nd\r\ndata: hello\n\n\r\n48\r\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}\n\n\r\n"},
		{"of a failed response", countsTokens, get(), []step{{errorOf(503, `{"usage":{"prompt_tokens":3,"completion_tokens":5}}`)}, {ok200}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, ok 200 after 0s, 1s done 200 recovered 2",
			got(200, "ok", 2)},
		{"not of a page", countsTokens, get(), []step{{answer(200, `{"usage":{"prompt_tokens":3,"completion_tokens":5}}`, "Content-Type: text/html")}},
			"0s GET /a, ok 200 after 0s, 0s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/html\r\nContent-Length: 51\r\nX-Retryproxy-Attempts: 1\r\n\r\n{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}"},
		{"not if switched off", nil, get(), []step{{used}},
			"0s GET /a, ok 200 after 0s, 0s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 51\r\nX-Retryproxy-Attempts: 1\r\n\r\n{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}"},
	})
}
