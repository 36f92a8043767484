package exchange

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/eventstream"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

const (
	events  = "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n" // ends with the connection
	ping    = ": ping\n\n"
	content = "data: hello\n\n"
	failure = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"
)

// chunked is an event stream in chunks, one for each piece, without its end.
func chunked(pieces ...string) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, p := range pieces {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(p), p)
	}
	return b.String()
}

const lastChunk = "0\r\n\r\n"

// held holds event streams back for up to 20 s.
func held(_ *served, c *settings.Config) { c.Default.FirstContentTimeout = 20 * time.Second }

// An event stream is held back until its first content, so that what fails before can be retried.
func TestFirstContent(t *testing.T) {
	const s = time.Second
	runAll(t, []example{
		{"at once", held, get(), []step{{events + content, s, content, closes}},
			"0s GET /a, ok 200 after 0s, 1s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\nd\r\ndata: hello\n\n\r\nd\r\ndata: hello\n\n\r\n0\r\n\r\n"},
		{"pings come first", held, get(), []step{{events + ping, 3 * s, ping, 3 * s, content, s, closes}},
			"0s GET /a, ok 200 after 6s, 7s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n1d\r\n: ping\n\n: ping\n\ndata: hello\n\n\r\n0\r\n\r\n"},
		{"nothing but an end", held, get(), []step{{events + ping, s, closes}},
			"0s GET /a, ok 200 after 1s, 1s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n8\r\n: ping\n\n\r\n0\r\n\r\n"},
		{"a failure", held, get(), []step{{events + ping, s, failure, closes}, {events + content, closes}},
			"0s GET /a, unknown 529 after 1s, waited 1s, retry status_other, 2s GET /a, ok 200 after 0s, 2s done 200 recovered 2",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\n\r\nd\r\ndata: hello\n\n\r\n0\r\n\r\n"},
		{"a failure of what is unsafe", held, with("POST", "body"), []step{{events + failure, closes}},
			"0s POST /a body, unknown 529 after 0s, 0s done 200 gave_up_not_idempotent 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: not_idempotent\r\nX-Should-Retry: false\r\n\r\n49\r\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n\r\n0\r\n\r\n"},
		{"failures only", all(held, func(_ *served, c *settings.Config) { c.Default.Policy.MaxRetries = 1 }), get(), []step{{events + failure, closes}, {events + ping + failure, closes}},
			"0s GET /a, unknown 529 after 0s, waited 1s, retry status_other, 1s GET /a, unknown 529 after 0s, 1s done 200 gave_up_retries_exhausted 2",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\nX-Retryproxy-Reason: retries_exhausted\r\n\r\n51\r\n: ping\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n\r\n0\r\n\r\n"},
		{"a failure after content", held, get(), []step{{events + content, s, failure, closes}},
			"0s GET /a, ok 200 after 0s, 1s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\nd\r\ndata: hello\n\n\r\n49\r\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n\r\n0\r\n\r\n"},
		{"cut off before content", held, get(), []step{{chunked(ping), s, closes}, {chunked(content) + lastChunk}},
			"0s GET /a, unknown 0 after 1s, waited 1s, retry reset, 2s GET /a, ok 200 after 0s, 2s done 200 recovered 2",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\n\r\nd\r\ndata: hello\n\n\r\n0\r\n\r\n"},
		{"cut off after content", held, get(), []step{{chunked(content), s, closes}},
			"0s GET /a, ok 200 after 0s, 1s done 200 stream_cut 1, closed",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\nd\r\ndata: hello\n\n\r\n"},
		{"silent", held, get(), []step{{events, 25 * s, closes}},
			"0s GET /a, ok 200 after 20s, 25s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n0\r\n\r\n"},
		{"silent, and the client waits for 8 s", held, get("X-Request-Timeout: 8"), []step{{events, 25 * s, closes}},
			"0s GET /a, ok 200 after 4s, 14s done 200 stream_cut 1, closed",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n"},
		{"silent, and the request has 15 s", all(held, func(_ *served, c *settings.Config) { c.Default.RequestTimeout = 15 * s }), get(), []step{{events, 22 * s, closes}},
			"0s GET /a, ok 200 after 15s, 22s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n0\r\n\r\n"},
		{"a ping after 9 s", held, get(), []step{{events, 9 * s, ping, 25 * s, closes}},
			"0s GET /a, ok 200 after 20s, 30s done 200 stream_cut 1, closed",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n8\r\n: ping\n\n\r\n"},
		{"a ping after 10 s", held, get(), []step{{events, 10 * s, ping, 25 * s, closes}},
			"0s GET /a, ok 200 after 10s, 20s done 200 stream_cut 1, closed",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n8\r\n: ping\n\n\r\n"},
		{"half of an event after 10 s", held, get(), []step{{events, 10 * s, "event: pi", 25 * s, closes}},
			"0s GET /a, ok 200 after 20s, 30s done 200 stream_cut 1, closed",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n9\r\nevent: pi\r\n"},
		{"more than the memory", all(held, func(_ *served, c *settings.Config) { c.RetryBufferTotalBytes = 100 }), get(), []step{{events + ping, 3 * s, content, closes}},
			"0s GET /a, ok 200 after 0s, 3s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n8\r\n: ping\n\n\r\nd\r\ndata: hello\n\n\r\n0\r\n\r\n"},
		{"compressed", held, get(), []step{{strings.Replace(events, "\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n", 1) + ping, s, closes}},
			"0s GET /a, ok 200 after 0s, 1s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n8\r\n: ping\n\n\r\n0\r\n\r\n"},
		{"of another type", held, get(), []step{{strings.Replace(events, "event-stream", "plain", 1) + ping, s, closes}},
			"0s GET /a, ok 200 after 0s, 1s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n8\r\n: ping\n\n\r\n0\r\n\r\n"},
		{"with another status", held, get(), []step{{strings.Replace(events, "200", "201", 1) + ping, s, closes}},
			"0s GET /a, ok 201 after 0s, 1s done 201 success 1",
			"HTTP/1.1 201 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n8\r\n: ping\n\n\r\n0\r\n\r\n"},
		{"dry run", all(held, dryRun), get(), []step{{events + failure, s, closes}},
			"0s GET /a, ok 200 after 0s, 1s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n49\r\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n\r\n0\r\n\r\n"},
		{"switched off", nil, get(), []step{{events + failure, s, closes}},
			"0s GET /a, ok 200 after 0s, 1s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n49\r\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n\r\n0\r\n\r\n"},
	})
}

// A stream that begins with more than is held back is relayed, whatever it is.
func TestALongBeginningIsRelayed(t *testing.T) {
	comment := ":" + strings.Repeat("a", eventstream.MaxHeld)
	for _, c := range []struct{ text, story string }{
		{comment[:eventstream.MaxHeld-1], "0s GET /a, ok 200 after 1s, 1s done 200 success 1"},
		{comment, "0s GET /a, ok 200 after 0s, 1s done 200 success 1"},
	} {
		inMemory(t, []step{{events + c.text, time.Second, closes}}, held, func(s *served) {
			s.serve(get())
			s.wants(c.story, s.client.String())
			if n := strings.Count(s.client.String(), "a"); n < len(c.text)-1 {
				s.Errorf("%d bytes of %d came", n, len(c.text))
			}
		})
	}
}
