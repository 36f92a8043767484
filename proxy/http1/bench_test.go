package http1

import "testing"

// Eight fields as a browser-like client sends them, 377 bytes.
const typicalRequest = "GET /search/items?q=retry+budget&page=2 HTTP/1.1\r\n" +
	"Host: api.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\n" +
	"Accept: application/json, text/plain, */*\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\n" +
	"Accept-Language: en-GB,en;q=0.9\r\n" +
	"Connection: keep-alive\r\n" +
	"Cookie: session=6f1d2c3b4a59687766554433221100ff\r\n" +
	"X-Request-Id: 0190c7d2-3f5e-7b1a-9c55-2f4f6f1d7c11\r\n" +
	"\r\n"

const typicalResponse = "HTTP/1.1 200 OK\r\n" +
	"Date: Tue, 15 Nov 1994 08:12:31 GMT\r\n" +
	"Server: nginx\r\n" +
	"Content-Type: application/json; charset=utf-8\r\n" +
	"Content-Length: 1270\r\n" +
	"Connection: keep-alive\r\n" +
	"Cache-Control: no-cache, no-store\r\n" +
	"ETag: \"6f1d2c3b4a596877\"\r\n" +
	"Vary: Accept-Encoding\r\n" +
	"\r\n"

func BenchmarkRequestParse(b *testing.B) {
	buf := []byte(typicalRequest)
	var r Request
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if n, err := r.Parse(buf, Limits{}); n != len(buf) {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkRequestParseMinimal(b *testing.B) {
	buf := []byte("GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n")
	var r Request
	b.ReportAllocs()
	for b.Loop() {
		if n, err := r.Parse(buf, Limits{}); n != len(buf) {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkResponseParse(b *testing.B) {
	buf := []byte(typicalResponse)
	get := []byte("GET")
	var r Response
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if n, err := r.Parse(buf, Limits{}, get); n != len(buf) {
			b.Fatal(n, err)
		}
	}
}

// One field differs from head to head, as with most clients.
func BenchmarkRequestParseChanging(b *testing.B) {
	buf := []byte(typicalRequest)
	id := buf[len(buf)-6:]
	var r Request
	b.ReportAllocs()
	for b.Loop() {
		if id[0]++; id[0] > 'z' {
			id[0] = 'a'
			id[1] ^= 1
		}
		if n, err := r.Parse(buf, Limits{}); n != len(buf) {
			b.Fatal(n, err)
		}
	}
}

// a header section of the largest size that comes one byte at a time: the whole cost, 65 536 calls.
func BenchmarkRequestTrickle64K(b *testing.B) {
	buf := largestHeaders()
	var r Request
	b.ReportAllocs()
	for b.Loop() {
		for k := 1; k <= len(buf); k++ {
			if _, err := r.Parse(buf[:k], Limits{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkChunkedDecode(b *testing.B) {
	var body []byte
	for range 16 {
		body = AppendChunk(body, make([]byte, 4096))
	}
	body = AppendLastChunk(body, nil)
	var c Chunked
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		c.Reset(Limits{})
		for p := body; !c.Done(); {
			n, _, err := c.Next(p)
			if err != nil {
				b.Fatal(err)
			}
			p = p[n:]
		}
	}
}

func BenchmarkLookupName(b *testing.B) {
	name := []byte("x-forwarded-for")
	b.ReportAllocs()
	for b.Loop() {
		if LookupHeaderName(name) != XForwardedFor {
			b.Fatal("wrong id")
		}
	}
}

func BenchmarkLookupNameUnknown(b *testing.B) {
	name := []byte("X-Amz-Content-Sha256")
	b.ReportAllocs()
	for b.Loop() {
		if LookupHeaderName(name) != OtherHeader {
			b.Fatal("wrong id")
		}
	}
}

// largestHeaders is a valid head of exactly DefaultHeaderBytes.
func largestHeaders() []byte {
	head := []byte("GET / HTTP/1.1\r\nHost: a\r\n")
	for i := range 90 {
		n := 720
		if i == 89 {
			n = DefaultHeaderBytes - 2 - len(head) - len("X: \r\n")
		}
		value := make([]byte, n)
		for k := range value {
			value[k] = 'v'
		}
		head = AppendHeader(head, "X", value)
	}
	return append(head, "\r\n"...)
}
