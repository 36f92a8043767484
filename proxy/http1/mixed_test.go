package http1

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Random bytes seldom form a header section. Here header sections are put together from pieces that are each plausible, or wrong in a known way, and
// compared with net/http exactly as in the fuzz targets; this reaches combinations that the tables do not list.

var wrongLineEnds = []string{"\n", "\r", "\r\r\n", " \r\n", "\r\n "}

var requestLines = []string{
	"GET / HTTP/1.1", "POST /a?b HTTP/1.1", "POST /a HTTP/1.0", "OPTIONS * HTTP/1.1", "PUT http://b:1/x HTTP/1.1", "HEAD https://[::1]?y HTTP/1.1",
	"OPTIONS http://b HTTP/1.1", "GET //a/%41 HTTP/1.1", "GET /a%4 HTTP/1.1", "GET /[|] HTTP/1.2", "GET * HTTP/1.1", "X /a#b HTTP/1.1", "GET /\x80 HTTP/1.1",
	"GET  / HTTP/1.1", "GET / HTTP/2.0", "GET / HTTP/1.1 ", "", "CONNECT a:1 HTTP/1.1", "get http://u:p@a/ HTTP/1.1", "GET http:///a HTTP/1.1",
}

var statusLines = []string{
	"HTTP/1.1 200 OK", "HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.0 200 OK", "HTTP/1.1 204 No", "HTTP/1.1 304 Not", "HTTP/1.1 100 C", "HTTP/1.1 101 S",
	"HTTP/1.1 599 x\xff", "HTTP/1.1 600 x", "HTTP/1.1 099 x", "HTTP/1.1 20 x", "HTTP/1.1  200 x", "HTTP/2.0 200 x", "HTTP/1.3 404 x", "",
}

var headerLines = []string{
	"Host: a", "Host: a", "Host: a", "host:b.example:80", "Host: [::1]", "Host:", "Host: a b", "Content-Length: 5", "Content-Length: 5", "content-length:0",
	"Content-Length: 05", "Content-Length: +5", "Content-Length: 5, 5", "Content-Length: 7", "Content-Length : 5", "Content_Length: 5",
	"Transfer-Encoding: chunked", "transfer-encoding:\tCHUNKED ", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked",
	"Transfer-Encoding: identity", "Transfer-Encoding:", "Transfer-Encoding: chunked;x", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding\t: chunked",
	"Connection: close", "Connection: keep-alive", "Connection: x, ,Close", "Connection: \"close\"", "Expect: 100-continue", "Expect: x", "TE: trailers",
	"Upgrade: websocket", "Connection: upgrade", "Keep-Alive: timeout=5", "Trailer: X", "Pragma: no-cache", "X: \t y\t", "X:", "X-\xe9: y", "X: \xe9", "X: a\x00",
	" fold", "X", ": y", "X y: z", "Cookie: a=b; c=d", "Range: bytes=0-1", "X: a\tb",
}

var bodies = []string{
	"", "hello", "hello, and more", "5\r\nhello\r\n0\r\n\r\nnext", "5;a=b\r\nhello\r\n0;x\r\nX: 1\r\nHost: b\r\n\r\nnext", "5\r\nhel", "5\r\nhello\r\n0\r\nX: 1\r\n",
	"05\r\nhello\r\n00\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "5\nhello\n0\n\n", "5\r\nhelloX0\r\n\r\n", "0\r\nX : 1\r\n\r\n", "0\r\n fold\r\n\r\n", "-5\r\n", "0x5\r\nhello\r\n0\r\n\r\n",
	"ffffffffffffffff\r\nx", "5\r\nhello\r\n0\r\n\r", "0\r\nGET / HTTP/1.1\r\n\r\n",
}

func mixedHeaders(rng *rand.Rand, first []string) string {
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	end := func() string {
		if rng.IntN(40) == 0 {
			return pick(wrongLineEnds)
		}
		return "\r\n"
	}
	usual := min(len(first), 8) // the well-formed ones come first: take them more often
	if rng.IntN(3) > 0 {
		first = first[:usual]
	}
	var b strings.Builder
	b.WriteString(pick(first) + end())
	if rng.IntN(3) > 0 {
		b.WriteString("Host: c\r\n")
	}
	for range rng.IntN(4) {
		b.WriteString(pick(headerLines) + end())
	}
	b.WriteString(end() + pick(bodies))
	return b.String()
}

func TestMixedRequestsAgreeWithNetHTTP(t *testing.T) {
	rng := rand.New(rand.NewPCG(91, 12))
	accepted, refused := map[Kind]int{}, map[error]int{}
	for range 20_000 {
		head := []byte(mixedHeaders(rng, requestLines))
		var r Request
		n, err := r.Parse(head, Limits{})
		checkPrefix(t, head, rng.IntN(len(head)), n, err, func(b []byte) (int, error) { return new(Request).Parse(b, Limits{}) })
		if err != nil {
			refused[err]++
		} else if n > 0 {
			accepted[r.Body.Kind]++
			compareRequest(t, &r, head, n)
		}
	}
	if accepted[BodyNone] < 150 || accepted[BodyLength] < 150 || accepted[BodyChunked] < 150 || len(refused) < 18 {
		t.Fatalf("the mix says too little: accepted %v, %d kinds of refusal", accepted, len(refused))
	}
}

func TestMixedResponsesAgreeWithNetHTTP(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 91))
	accepted, refused := map[Kind]int{}, map[error]int{}
	for range 20_000 {
		head, method := []byte(mixedHeaders(rng, statusLines)), "GET"
		if rng.IntN(4) == 0 {
			method = "HEAD"
		}
		var r Response
		n, err := r.Parse(head, Limits{}, []byte(method))
		checkPrefix(t, head, rng.IntN(len(head)), n, err, func(b []byte) (int, error) { return new(Response).Parse(b, Limits{}, []byte(method)) })
		if err != nil {
			refused[err]++
		} else if n > 0 {
			accepted[r.Body.Kind]++
			compareResponse(t, &r, head, n, method)
		}
	}
	if len(accepted) < 4 || accepted[BodyLength] < 150 || accepted[BodyChunked] < 100 || accepted[BodyClose] < 150 || len(refused) < 14 {
		t.Fatalf("the mix says too little: accepted %v, %d kinds of refusal", accepted, len(refused))
	}
}
