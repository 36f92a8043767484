package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/settings"
)

// A connection serves the next request if its response came whole and in order, and no other does.
func TestWhichConnectionServesTheNextRequest(t *testing.T) {
	const s = time.Second
	busy := answer(503, "busy")
	upload := message("PUT", "Content-Length: 8") + "\r\nbody"
	for _, c := range []struct {
		name    string
		change  func(s *served, c *settings.Config)
		request string
		steps   []step // of the request; the next one gets ok200
		dials   int32  // of both
	}{
		{"a response with a length", nil, get(), []step{{ok200}}, 1},
		{"a response in chunks", nil, get(), []step{{"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"}}, 1},
		{"no body", nil, get(), []step{{"HTTP/1.1 204 X\r\n\r\n"}}, 1},
		{"a request with a body", nil, with("PUT", "body"), []step{{ok200}}, 1},
		{"a GET with a body, which may be left unread", nil, with("GET", "body"), []step{{ok200}}, 2},
		{"the upstream closes it", nil, get(), []step{{answer(200, "ok", "Connection: close")}}, 2},
		{"the response ends with it", nil, get(), []step{{"HTTP/1.1 200 X\r\n\r\nok", closes}}, 2},
		{"bytes follow the response", nil, get(), []step{{ok200 + "HTTP/1.1 200"}}, 2},
		{"a retry of a response that was read", nil, get(), []step{{busy}, {ok200}}, 1},
		{"a retry of a slow response", nil, get(), []step{{slowHead, 10 * s, "rest"}, {ok200}}, 2},
		{"a retry after a timeout", nil, get(), []step{{time.Minute}, {ok200}}, 2},
		{"a response that came before the body", then(s, "body"), upload, []step{{early(ok200)}}, 2},
		{"a hedge that won", hedged, get(), []step{{time.Minute}, {s, ok200}}, 2},
		{"a hedge that lost", hedged, get(), []step{{s, ok200}, {time.Minute}}, 2},
		{"an event stream that failed", held, get(), []step{{chunked(failure) + lastChunk}, {ok200}}, 1},
		{"a gRPC call", grpc, with("PUT", "body"), []step{{call + messages + callEnds("0")}}, 1},
		{"a refused upgrade", nil, upgrade(""), []step{{answer(426, "no")}}, 1},
		{"no fallback was needed after all", fixed(200, "ours"), get(), []step{{busy}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, append(c.steps, step{ok200}), c.change, func(s *served) {
				s.serve(c.request)
				s.disconnect()
				s.connect()
				s.more, s.gRPC = nil, false
				s.serve(get())
				if got := s.client.String(); !strings.HasSuffix(got, "\r\n\r\nok") || s.dials.Load() != c.dials {
					s.Errorf("%d connections; the client got %q", s.dials.Load(), got)
				}
			})
		})
	}
}
