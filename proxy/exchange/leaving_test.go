package exchange

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// A client that leaves ends its request wherever it is, and costs no attempt any more.
func TestAClientThatLeaves(t *testing.T) {
	const s = time.Second
	busy := answer(503, "busy")
	soon := attempt.InlineWait.String() // until the response is looked for while a body is sent
	upload := message("PUT", "Content-Length: 8") + "\r\nbody"
	runAll(t, []example{
		{"while its request waits for a retry", then(s/2, closes), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, waited 500ms, 500ms done 0 client_gone 1, reset",
			""},
		{"while its retry is in flight", then(2*s, closes), get(), []step{{busy}, {time.Minute}},
			"0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, unknown 0 after 1s, 2s done 0 client_gone 2, reset",
			""},
		{"while the first attempt is in flight", then(s, closes), get(), []step{{time.Minute}},
			"0s GET /a, unknown 0 after 1s, 1s done 0 client_gone 1, reset",
			""},
		{"while the rest of a failed response comes", then(200*time.Millisecond, closes), get(), []step{{slowHead, s, "rest"}},
			"0s GET /a, unknown 503 after 200ms, 200ms done 0 client_gone 1, reset",
			""},
		{"before its body came", then(s, closes), upload, nil,
			"unknown 0 after 1s, 1s done 400 request_broken 1, closed, 1s PUT /a cut after 4",
			own(400, "Bad Request", 1, "request_broken", "Connection: close")},
		{"during its body and after the response", then(s, closes), upload, []step{{early(ok200)}},
			"0s PUT /a, ok 200 after " + soon + ", " + soon + " done 200 success 1, closed, " + soon + " PUT /a cut after 4",
			got(200, "ok", 1, "Connection: close")},
		{"while its request waits for the budget", all(queuesForBudget, then(2*s, closes)), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, queued 2s, 2s done 0 client_gone 1, reset",
			""},
		{"while its hedge is in flight", all(hedged, then(s, closes)), get(), []step{{time.Minute}, {time.Minute}},
			"0s GET /a, 100ms GET /a, hedged, unknown 0 after 900ms, unknown 0 after 1s, 1s done 0 client_gone 2, reset",
			""},
		{"while its fallback is in flight", all(spare([]step{{time.Minute}}), then(s, closes)), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, 0s spare GET /a, 1s done 0 client_gone 1, reset",
			""},
		{"while its response comes", then(s, closes), get(), []step{{"HTTP/1.1 200 X\r\nContent-Length: 4\r\n\r\nab", 2 * s, "cd"}},
			"0s GET /a, ok 200 after 0s, 1s done 200 client_gone 1, reset",
			"HTTP/1.1 200 X\r\nContent-Length: 4\r\nX-Retryproxy-Attempts: 1\r\n\r\nab"},
		{"while an event stream is held back", all(held, then(s, closes)), get(), []step{{events + ping, 2 * s, content, closes}},
			"0s GET /a, unknown 0 after 1s, 1s done 0 client_gone 1, reset",
			""},
	})
}

// What the client sends behind its request belongs to its next one, and ends no wait.
func TestTheNextRequestEndsNoWait(t *testing.T) {
	inMemory(t, []step{{answer(503, "busy")}, {ok200}}, then(time.Second/2, get()), func(s *served) {
		s.serve(get())
		s.wants("0s GET /a, unknown 503 after 0s, waited 1s, retry status_503, 1s GET /a, ok 200 after 0s, 1s done 200 recovered 2", got(200, "ok", 2))
		if string(s.conn.Peek()) != get() {
			s.Errorf("behind it is %q", s.conn.Peek())
		}
	})
}

// A retry does not wait while the process drains: the client gets the last response now.
func TestADrainEndsTheWaits(t *testing.T) {
	const s = time.Second
	busy := answer(503, "busy")
	drains := func(after time.Duration) func(s *served, c *settings.Config) {
		return func(s *served, _ *settings.Config) {
			s.more = []any{after, func() { s.process.BeginDrain(s.process.Clock.Now()); s.conn.WakeQueued() }}
		}
	}
	runAll(t, []example{
		{"of a retry", drains(s / 2), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, waited 500ms, 500ms done 503 gave_up_draining 1, closed",
			got(503, "busy", 1, because("draining"), "Connection: close")},
		{"of a retry without a response", drains(s / 2), get(), []step{{closes}},
			"0s GET /a, unknown 0 after 0s, waited 500ms, 500ms done 502 gave_up_draining 1, closed",
			own(502, "the upstream closed the connection before it responded", 1, "draining", "Connection: close")},
		{"for the budget", all(queuesForBudget, drains(2*s)), get(), []step{{busy}},
			"0s GET /a, unknown 503 after 0s, queued 2s, 2s done 503 gave_up_draining 1, closed",
			got(503, "busy", 1, because("draining"), "Connection: close")},
		{"not an attempt", drains(s), get(), []step{{2 * s, ok200}},
			"0s GET /a, ok 200 after 2s, 2s done 200 success 1, closed",
			got(200, "ok", 1, "Connection: close")},
		{"and no retry begins", drains(s), get(), []step{{2 * s, busy}},
			"0s GET /a, unknown 503 after 2s, 2s done 503 gave_up_draining 1, closed",
			got(503, "busy", 1, because("draining"), "Connection: close")},
	})
}

// A client that waits for a 100 gets one from the upstream, or from us before a retry.
func TestExpectContinue(t *testing.T) {
	const s = time.Second
	head := message("PUT", "Content-Length: 4", "Expect: 100-continue") + "\r\n"
	continues := "HTTP/1.1 100 Continue\r\n\r\n"
	runAll(t, []example{
		{"the upstream asks for the body", then(s, "body"), head, []step{{early(continues), s, ok200}},
			"0s PUT /a, 1s PUT /a body, ok 200 after 2s, 2s done 200 success 1",
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 X\r\nContent-Length: 2\r\nX-Retryproxy-Attempts: 1\r\n\r\nok"},
		{"the upstream asks twice", then(s, "body"), head, []step{{early(continues + continues), s, ok200}},
			"0s PUT /a, 1s PUT /a body, ok 200 after 2s, 2s done 200 success 1",
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 X\r\nContent-Length: 2\r\nX-Retryproxy-Attempts: 1\r\n\r\nok"},
		{"the upstream refuses the body", nil, head, []step{{early(answer(413, "no"))}},
			"0s PUT /a, ok 413 after 0s, 0s done 413 success 1, closed, 0s PUT /a cut after 0",
			got(413, "no", 1, "Connection: close")},
		{"the upstream is refused first", then(2*s, "body"), head, []step{{refuses}, {s, ok200}},
			"0s refused, not_sent 0 after 0s, waited 1s, retry connect_failure, 2s PUT /a body, ok 200 after 2s, 3s done 200 recovered 2",
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 X\r\nContent-Length: 2\r\nX-Retryproxy-Attempts: 2\r\n\r\nok"},
	})
}
