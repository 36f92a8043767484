package forward

import (
	"strconv"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

func TestResponseHeaders(t *testing.T) {
	chunked := http1.Framing{Kind: http1.BodyChunked}
	length := func(n int64) http1.Framing { return http1.Framing{Kind: http1.BodyLength, Length: n} }
	for _, c := range []struct {
		name   string
		in     []string
		method string
		o      ResponseOptions
		want   []string
	}{
		{
			name: "plain fields keep order, case and duplicates",
			in:   []string{"HTTP/1.1 200 Fine By Me", "date: Mon, 02 Jan 2006 15:04:05 GMT", "Set-Cookie: a=b", "SERVER: x", "Content-Length: 3", "Set-Cookie: c=d", "X-Request-Id: r", "Content_Length: 9"},
			o:    ResponseOptions{Framing: length(3), Minor: 1},
			want: []string{"HTTP/1.1 200 Fine By Me", "date: Mon, 02 Jan 2006 15:04:05 GMT", "Set-Cookie: a=b", "SERVER: x", "Content-Length: 3", "Set-Cookie: c=d", "X-Request-Id: r", "Content_Length: 9"},
		},
		{
			name: "hop-by-hop fields end here, known ones cannot be taken off",
			in: []string{"HTTP/1.1 200 OK", "Connection: close, x-hop, Set-Cookie, Content-Length", "Keep-Alive: timeout=5", "X-Hop: 1", "Set-Cookie: a", "Proxy-Authenticate: Basic", "Proxy-Connection: close", "Proxy-Authentication-Info: x",
				"Upgrade: h2c", "Trailer: X-T", "Content-Length: 3"},
			o:    ResponseOptions{Framing: length(3), Minor: 1},
			want: []string{"HTTP/1.1 200 OK", "Set-Cookie: a", "Content-Length: 3"},
		},
		{
			name: "chunked to 1.1, Trailer stays",
			in:   []string{"HTTP/1.1 200 OK", "transfer-encoding: chunked", "Trailer: X-T", "A: a"},
			o:    ResponseOptions{Framing: chunked, Minor: 1},
			want: []string{"HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Trailer: X-T", "A: a"},
		},
		{
			name: "a Trailer that names framing is left out",
			in:   []string{"HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Trailer: trailer", "A: a"},
			o:    ResponseOptions{Framing: chunked, Minor: 1},
			want: []string{"HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "A: a"},
		},
		{
			name: "chunked to 1.0 ends by close",
			in:   []string{"HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Trailer: X-T", "A: a"},
			o:    ResponseOptions{Framing: http1.Framing{Kind: http1.BodyClose}, Minor: 0},
			want: []string{"HTTP/1.1 200 OK", "A: a", "Connection: close"},
		},
		{
			name: "ended by close becomes chunked, phrase empty",
			in:   []string{"HTTP/1.0 200 ", "A: a"},
			o:    ResponseOptions{Framing: chunked, Minor: 1, Close: true},
			want: []string{"HTTP/1.1 200 ", "A: a", "Transfer-Encoding: chunked", "Connection: close"},
		},
		{
			name: "1.0 client kept",
			in:   []string{"HTTP/1.1 200 OK", "Content-Length: 3"},
			o:    ResponseOptions{Framing: length(3)},
			want: []string{"HTTP/1.1 200 OK", "Content-Length: 3", "Connection: keep-alive"},
		},
		{
			name: "repeated equal lengths become one", // which http1 lets through from upstreams
			in:   []string{"HTTP/1.1 200 OK", "Content-Length: 3", "A: a", "Content-Length: 3"},
			o:    ResponseOptions{Framing: length(3), Minor: 1},
			want: []string{"HTTP/1.1 200 OK", "Content-Length: 3", "A: a"},
		},
		{
			name: "HEAD keeps the length", method: "HEAD",
			in:   []string{"HTTP/1.1 200 OK", "A: a", "Content-Length: 12", "B: b"},
			o:    ResponseOptions{Minor: 1},
			want: []string{"HTTP/1.1 200 OK", "A: a", "Content-Length: 12", "B: b"},
		},
		{
			name: "HEAD without length has none", method: "HEAD",
			in:   []string{"HTTP/1.1 200 OK", "Transfer-Encoding: chunked"},
			o:    ResponseOptions{Minor: 1},
			want: []string{"HTTP/1.1 200 OK"},
		},
		{
			name: "304 keeps the length",
			in:   []string{"HTTP/1.1 304 Not Modified", "Content-Length: 12"},
			o:    ResponseOptions{Minor: 1},
			want: []string{"HTTP/1.1 304 Not Modified", "Content-Length: 12"},
		},
		{
			name: "204 has no length",
			in:   []string{"HTTP/1.1 204 No Content", "Content-Length: 0", "A: a"},
			o:    ResponseOptions{Minor: 1},
			want: []string{"HTTP/1.1 204 No Content", "A: a"},
		},
		{
			name: "upgrade",
			in:   []string{"HTTP/1.1 101 Switching Protocols", "upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: k"},
			o:    ResponseOptions{Upgrade: true, Close: true, Attempts: 2},
			want: []string{"HTTP/1.1 101 Switching Protocols", "Sec-WebSocket-Accept: k", "X-Retryproxy-Attempts: 2", "Connection: upgrade", "Upgrade: websocket"},
		},
		{
			name: "426 says to what",
			in:   []string{"HTTP/1.1 426 Upgrade Required", "Upgrade: websocket", "Connection: upgrade", "Content-Length: 0"},
			o:    ResponseOptions{Framing: length(0), Minor: 1, Close: true},
			want: []string{"HTTP/1.1 426 Upgrade Required", "Content-Length: 0", "Connection: upgrade", "Upgrade: websocket", "Connection: close"},
		},
		{
			name: "Via left alone",
			in:   []string{"HTTP/1.1 200 OK", "Via: 1.1 a", "Via: 1.1 b", "Content-Length: 0"},
			o:    ResponseOptions{Framing: length(0), Minor: 1},
			want: []string{"HTTP/1.1 200 OK", "Via: 1.1 a", "Via: 1.1 b", "Content-Length: 0"},
		},
		{
			name: "attempts and reason",
			in:   []string{"HTTP/1.1 503 Sorry", "Content-Length: 0"},
			o:    ResponseOptions{Framing: length(0), Minor: 1, Attempts: 4, Reason: "retries_exhausted"},
			want: []string{"HTTP/1.1 503 Sorry", "Content-Length: 0", "X-Retryproxy-Attempts: 4", "X-Retryproxy-Reason: retries_exhausted"},
		},
		{
			name: "a fallback is told, in place of an inner one",
			in:   []string{"HTTP/1.1 200 OK", "x-retryproxy-fallback: answer", "X-Retryproxy-Else: 1", "Content-Length: 0"},
			o:    ResponseOptions{Framing: length(0), Minor: 1, Fallback: "upstream"},
			want: []string{"HTTP/1.1 200 OK", "X-Retryproxy-Else: 1", "Content-Length: 0", "X-Retryproxy-Fallback: upstream"},
		},
		{
			name: "an inner proxy's fallback stays where there is none here",
			in:   []string{"HTTP/1.1 200 OK", "x-retryproxy-fallback: answer", "Content-Length: 0"},
			o:    ResponseOptions{Framing: length(0), Minor: 1},
			want: []string{"HTTP/1.1 200 OK", "x-retryproxy-fallback: answer", "Content-Length: 0"},
		},
		{
			name: "an inner proxy's word stays where ours only points to it",
			in:   []string{"HTTP/1.1 503 Sorry", "x-retryproxy-attempts: 4", "X-Retryproxy-Reason: retries_exhausted", "X-Retryproxy-Attempts: 9", "Content-Length: 0", "X-Retryproxy-Reason: deadline"},
			o:    ResponseOptions{Framing: length(0), Minor: 1, Attempts: 1, Reason: "upstream_gave_up"},
			want: []string{"HTTP/1.1 503 Sorry", "x-retryproxy-attempts: 4", "X-Retryproxy-Reason: retries_exhausted", "Content-Length: 0"},
		},
		{
			name: "ours where it says more",
			in:   []string{"HTTP/1.1 503 Sorry", "X-Retryproxy-Attempts: 1", "X-Retryproxy-Reason: not_idempotent", "Content-Length: 0"},
			o:    ResponseOptions{Framing: length(0), Minor: 1, Attempts: 3, Reason: "deadline"},
			want: []string{"HTTP/1.1 503 Sorry", "X-Retryproxy-Attempts: 3", "X-Retryproxy-Reason: deadline", "Content-Length: 0"},
		},
		{
			name: "a number of attempts that is none is replaced",
			in:   []string{"HTTP/1.1 200 OK", "X-Retryproxy-Attempts: many", "Content-Length: 0"},
			o:    ResponseOptions{Framing: length(0), Minor: 1, Attempts: 1},
			want: []string{"HTTP/1.1 200 OK", "X-Retryproxy-Attempts: 1", "Content-Length: 0"},
		},
		{
			name: "or stays when there is nothing better",
			in:   []string{"HTTP/1.1 200 OK", "X-Retryproxy-Attempts: many", "Content-Length: 0"},
			o:    ResponseOptions{Framing: length(0), Minor: 1},
			want: []string{"HTTP/1.1 200 OK", "X-Retryproxy-Attempts: many", "Content-Length: 0"},
		},
		{
			name: "with nothing of our own the inner word stays, once",
			in:   []string{"HTTP/1.1 503 Sorry", "X-Retryproxy-Attempts: 4", "X-Retryproxy-Attempts: 5", "X-Retryproxy-Reason: deadline", "Content-Length: 0"},
			o:    ResponseOptions{Framing: length(0), Minor: 1},
			want: []string{"HTTP/1.1 503 Sorry", "X-Retryproxy-Attempts: 4", "X-Retryproxy-Reason: deadline", "Content-Length: 0"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := AppendResponseHeaders([]byte("before"), parseResponse(t, headerLines(c.in...), c.method), &c.o)
			compare(t, string(got), "before"+headerLines(c.want...)+"\r\n")
		})
	}
}

// Our own responses reuse a Response that was parsed before, and no upstream's
// word brings a length where none can be.
func TestFramingIsWrittenFromTheOptions(t *testing.T) {
	cl := []http1.Header{http1.NewHeader("Content-Length", "99")}
	for _, c := range []struct {
		status int
		o      ResponseOptions
		want   string
	}{
		{503, ResponseOptions{Framing: http1.Framing{Kind: http1.BodyLength, Length: 3}, Minor: 1}, "Content-Length: 3\r\n"},
		{503, ResponseOptions{Framing: http1.Framing{Kind: http1.BodyChunked}, Minor: 1}, "Transfer-Encoding: chunked\r\n"},
		{503, ResponseOptions{Framing: http1.Framing{Kind: http1.BodyClose}, Minor: 1}, "Connection: close\r\n"},
		{103, ResponseOptions{Minor: 1}, ""},
		{204, ResponseOptions{Minor: 1}, ""},
		{101, ResponseOptions{Upgrade: true}, "Connection: upgrade\r\nUpgrade: x\r\n"},
		{200, ResponseOptions{Upgrade: true}, "Connection: upgrade\r\nUpgrade: x\r\n"},
	} {
		r := &http1.Response{Minor: 1, Status: c.status, Phrase: []byte("P"), Length: 99, Upgrade: []byte("x"), Headers: cl}
		compare(t, string(AppendResponseHeaders(nil, r, &c.o)), headerLines("HTTP/1.1 "+strconv.Itoa(c.status)+" P")+c.want+"\r\n")
	}
}

func TestInformational(t *testing.T) {
	for _, c := range []struct{ in, want []string }{
		{[]string{"HTTP/1.1 100 Continue", "Connection: X-Hop", "X-Hop: 1"}, []string{"HTTP/1.1 100 Continue"}},
		{[]string{"HTTP/1.1 103 Early Hints", "Link: </a>", "Keep-Alive: timeout=3", "link: </b>"}, []string{"HTTP/1.1 103 Early Hints", "Link: </a>", "link: </b>"}},
		{[]string{"HTTP/1.1 102 "}, []string{"HTTP/1.1 102 "}},
	} {
		got := AppendInformational(wire.Lines, nil, parseResponse(t, headerLines(c.in...), "GET"), HeaderChanges{})
		compare(t, string(got), headerLines(c.want...)+"\r\n")
	}
}
