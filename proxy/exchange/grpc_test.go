package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// grpc makes requests gRPC calls, of which some are retried. They come by HTTP/1.1, which differs in the
// framing only.
func grpc(s *served, c *settings.Config) {
	on, err := policy.ParseRetryOn("grpc-unavailable,reset,503")
	if err != nil {
		s.Fatal(err)
	}
	s.gRPC, c.Default.Policy.RetryOn = true, on
}

const (
	call     = "HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n"
	messages = "3\r\nabc\r\n"
)

// callEnds is the end of a call, with more trailers, each a line.
func callEnds(code string, lines ...string) string {
	end := "0\r\nGrpc-Status: " + code + "\r\n"
	for _, l := range lines {
		end += l + "\r\n"
	}
	return end + "\r\n"
}

// A gRPC call that ended without a message is judged by its status, which may be in its trailers.
func TestGRPC(t *testing.T) {
	put := with("PUT", "body")
	only := answer(200, "", "Content-Type: application/grpc", "Grpc-Status: 14")
	runAll(t, []example{
		{"good", grpc, put, []step{{call + messages + callEnds("0")}},
			"0s PUT /a body, ok 200 after 0s, 0s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 0\r\n\r\n"},
		{"failed in the headers", grpc, put, []step{{only}, {call + messages + callEnds("0")}},
			"0s PUT /a body, rejected 200 after 0s, waited 1s, retry grpc_status, 1s PUT /a body, ok 200 after 0s, 1s done 200 recovered 2",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 0\r\n\r\n"},
		{"failed in the trailers", grpc, put, []step{{call + callEnds("14")}, {call + messages + callEnds("0")}},
			"0s PUT /a body, rejected 200 after 0s, waited 1s, retry grpc_status, 1s PUT /a body, ok 200 after 0s, 1s done 200 recovered 2",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 0\r\n\r\n"},
		{"failed in the trailers, which come soon", grpc, put, []step{{call, GRPCStatusWait / 2, callEnds("14")}, {call + messages + callEnds("0")}},
			"0s PUT /a body, rejected 200 after 25ms, waited 1s, retry grpc_status, 1.025s PUT /a body, ok 200 after 0s, 1.025s done 200 recovered 2",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 0\r\n\r\n"},
		{"failed in the trailers, which come late", grpc, put, []step{{call, 2 * GRPCStatusWait, callEnds("14")}},
			"0s PUT /a body, ok 200 after 55ms, 100ms done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n0\r\nGrpc-Status: 14\r\n\r\n"},
		{"failed after a message", grpc, put, []step{{call + messages + callEnds("14")}},
			"0s PUT /a body, ok 200 after 0s, 0s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 14\r\n\r\n"},
		{"a status that is not retried", grpc, put, []step{{call + callEnds("3")}},
			"0s PUT /a body, ok 200 after 0s, 0s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n0\r\nGrpc-Status: 3\r\n\r\n"},
		{"asks for a wait", all(grpc, waits(0)), put, []step{{call + callEnds("14", "Grpc-Retry-Pushback-Ms: 3000")}, {call + messages + callEnds("0")}},
			"0s PUT /a body, rejected 200 after 0s, waited 3s, retry grpc_status, 3s PUT /a body, ok 200 after 0s, 3s done 200 recovered 2",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 0\r\n\r\n"},
		{"asks for no retry", grpc, put, []step{{call + callEnds("14", "Grpc-Retry-Pushback-Ms: -1")}},
			"0s PUT /a body, rejected 200 after 0s, 0s done 200 gave_up_asked_not_to_retry 1",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: asked_not_to_retry\r\n\r\n0\r\nGrpc-Status: 14\r\nGrpc-Retry-Pushback-Ms: -1\r\n\r\n"},
		{"cut off before a message", grpc, put, []step{{call, closes}, {call + messages + callEnds("0")}},
			"0s PUT /a body, unknown 0 after 0s, waited 1s, retry reset, 1s PUT /a body, ok 200 after 0s, 1s done 200 recovered 2",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 2\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 0\r\n\r\n"},
		{"cut off after a message", grpc, put, []step{{call + messages, closes}},
			"0s PUT /a body, ok 200 after 0s, 0s done 200 response_broken 1, closed",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 14\r\nGrpc-Message: retryproxy: the upstream ended the call without a gRPC status\r\n\r\n"},
		{"no response at all", all(grpc, func(_ *served, c *settings.Config) { c.Default.Policy.MaxRetries = 0 }), put, []step{{refuses}},
			"0s refused, not_sent 0 after 0s, 0s done 200 gave_up_not_in_retry_on 1, closed",
			"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nGrpc-Status: 14\r\nGrpc-Message: retryproxy: the upstream could not be reached\r\nContent-Length: 0\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: not_in_retry_on\r\nConnection: close\r\n\r\n"},
		{"a response that is none of gRPC", all(grpc, func(_ *served, c *settings.Config) { c.Default.Policy.MaxRetries = 0 }), put, []step{{answer(503, "busy", "Content-Type: text/plain")}},
			"0s PUT /a body, unknown 503 after 0s, 0s done 200 gave_up_retries_off 1",
			"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nGrpc-Status: 14\r\nGrpc-Message: retryproxy: the upstream answered with HTTP status 503 and not with gRPC\r\nContent-Length: 0\r\nX-Retryproxy-Attempts: 1\r\nX-Retryproxy-Reason: retries_off\r\n\r\n"},
		{"statuses are not looked at", func(s *served, c *settings.Config) { s.gRPC = true }, put, []step{{call + callEnds("14")}},
			"0s PUT /a body, ok 200 after 0s, 0s done 200 success 1",
			"HTTP/1.1 200 X\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\nX-Retryproxy-Attempts: 1\r\n\r\n0\r\nGrpc-Status: 14\r\n\r\n"},
	})
}

// The client of a stream may wait for the headers of the response before it sends more, so it gets them at once.
func TestAGRPCStreamGetsItsHeadersAtOnce(t *testing.T) {
	stream := message("POST", "Idempotency-Key: 1", "Transfer-Encoding: chunked") + "\r\n3\r\nabc\r\n"
	inMemory(t, []step{{early(call), time.Second, callEnds("14")}}, grpc, func(s *served) {
		s.more = []any{GRPCStatusWait / 2, func() {
			if s.client.String() == "" {
				s.Error("it got nothing")
			}
		}, "0\r\n\r\n"}
		s.serve(stream)
		if got := s.client.String(); !strings.HasSuffix(got, "0\r\nGrpc-Status: 14\r\n\r\n") {
			s.Errorf("%q", got)
		}
	})
}
