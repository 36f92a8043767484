package forward

import (
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

var (
	benchRequest = headerLines("GET /api/v1/items/42?expand=owner HTTP/1.1", "Host: app.example.com", "User-Agent: curl/8.5.0", "Accept: application/json",
		"Accept-Encoding: gzip", "Authorization: Bearer abcdefghijklmnopqrstuvwxyz", "X-Tenant: blue", "Cookie: session=0123456789abcdef", "Connection: keep-alive")
	benchResponse = headerLines("HTTP/1.1 200 OK", "Date: Mon, 02 Jan 2006 15:04:05 GMT", "Server: nginx", "Content-Type: application/json", "Content-Length: 512",
		"Connection: keep-alive", "Cache-Control: no-store", "ETag: \"abc\"", "Set-Cookie: a=b; Path=/")
)

func BenchmarkRequestHeaders(b *testing.B) {
	r := parseRequest(b, benchRequest)
	s := Settings{UpstreamHost: "up.example", OwnHosts: []string{"proxy.internal:8080"}}
	p := client("192.0.2.1")
	dst, id := make([]byte, 0, 4096), AppendRandomID(nil)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendAttempt(wire.Lines, AppendRequestHeaders(dst[:0], r, &s, &p, id, nil), 1, false)
	}
}

func BenchmarkResponseHeaders(b *testing.B) {
	r := parseResponse(b, benchResponse, "GET")
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendResponseHeaders(dst[:0], r, &ResponseOptions{Framing: r.Body, Minor: 1, Attempts: 1})
	}
}

func BenchmarkRequestID(b *testing.B) {
	r := parseRequest(b, benchRequest)
	var buf [RandomIDLen]byte
	b.ReportAllocs()
	for b.Loop() {
		RequestID(r, buf[:0])
	}
}

func TestNothingIsAllocated(t *testing.T) {
	r := parseRequest(t, headerLines("OPTIONS /api/x HTTP/1.1", "Host: localhost:8080", "Connection: upgrade, X-Hop", "Upgrade: websocket", "X-Hop: 1", "TE: trailers",
		"X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 a", "Max-Forwards: 3", "X-Retryproxy-Attempt: 1"))
	s := Settings{UpstreamHost: "a-rather-long-upstream-name.example.internal:8443", OwnHosts: []string{"proxy.internal:8080"}, StripPrefix: "/api"}
	p := client("2001:db8:1:2:3:4:5:6")
	resp := parseResponse(t, headerLines("HTTP/1.1 200 OK", "Content-Length: 3", "Connection: X-Hop", "X-Hop: 1", "Via: 1.1 a", "X-Retryproxy-Attempts: 1"), "GET")
	dst, scratch, key := make([]byte, 0, 4096), make([]byte, 0, RandomIDLen), make([]byte, 0, RandomIDLen)
	if n := testing.AllocsPerRun(100, func() {
		id := RequestID(r, scratch)
		dst = AppendAttempt(wire.Lines, AppendRequestHeaders(dst[:0], r, &s, &p, id, AppendRandomID(key)), 2, true)
		dst = AppendResponseHeaders(dst[:0], resp, &ResponseOptions{Framing: http1.Framing{Kind: http1.BodyLength, Length: 3}, Attempts: 3, Reason: "deadline"})
		dst = AppendInformational(wire.Lines, dst[:0], resp, HeaderChanges{})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	trust := NewTrust(nil)
	if n := testing.AllocsPerRun(100, func() { trust.Trusted(p.Addr) }); n != 0 {
		t.Errorf("Trusted: %v allocations", n)
	}
}
