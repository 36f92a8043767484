package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/retryproxy/retryproxy/bench/conformance"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// last ends a client's stream: whoever reads the end of what is before it
// elsewhere swallows it.
const last = "GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"

// usable are the requests of the table that are not large.
func usable() (all []string) {
	for _, raw := range conformance.Requests() {
		if len(raw) < 4<<10 {
			all = append(all, raw)
		}
	}
	return all
}

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// generate makes the nth stream of a seed: what one client sends.
func generate(seed, n uint64, table []string) []byte {
	r := rand.New(rand.NewPCG(seed, n))
	var b bytes.Buffer
	for range 1 + r.IntN(4) {
		switch r.IntN(10) {
		case 0:
			b.WriteString(oneOf(r, table...))
		case 1, 2:
			b.Write(rig.Mutate(r, []byte(oneOf(r, table...))))
		case 3, 4:
			b.Write(rig.Mutate(r, []byte(sentence(r))))
		default:
			b.WriteString(sentence(r))
		}
	}
	b.WriteString(last)
	return b.Bytes()
}

// sentence is a request by the grammar, with all that is allowed and rare.
func sentence(r *rand.Rand) string {
	method := oneOf(r, "GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "M-SEARCH", "get", "X!#$%&'*+.^_`|~")
	target := oneOf(r, "/", "/a/b?c=d&e", "/%41%2f%00", "//a//b", "/a/../b", "/.", "/?", "/a?b?c", "/a;b=c:@!$&'()*+,", "/\xc3\xa9", "/%zz", "/%", "/..", "http://a.example/x?y", "http://a.example", "http://a.example:8080/", "/\"<>{}|^`\\", "/"+strings.Repeat("a", r.IntN(3000)))
	if method == "OPTIONS" && r.IntN(3) == 0 {
		target = "*"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, target)
	lines := []string{"Host: " + oneOf(r, "a.example", "a.example", "a.example:8080", "[::1]", "1.2.3.4", "A.eXample", "a_b.example")}
	for range r.IntN(5) {
		lines = append(lines, field(r))
	}
	body := framed(r, &lines)
	r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	for _, line := range lines {
		b.WriteString(line + "\r\n")
	}
	return b.String() + "\r\n" + body
}

func field(r *rand.Rand) string {
	name := oneOf(r, "X-A", "x", "X_Under_Score", "!#$%&'*+-.^_`|~", "Accept", "Cookie", "Content-Type", "X-Forwarded-For", "Via", "Forwarded", "Range", "If-Match", "Content-Encoding", "TE", "Trailer", "Connection", "Keep-Alive", "Expect", "Upgrade", "Proxy-Connection", "Max-Forwards", "X-Content-Length", "Content.Length", "HTTP2-Settings", "Sec-WebSocket-Key")
	value := oneOf(r, "", "1", "a, b", "trailers", "close", "keep-alive", "upgrade", "100-continue", "websocket", "x-a", "content-length", "transfer-encoding, host", "\xe9\xff", "a\tb", "\"q\\\"\"", "(c)", "a:b:c", "chunked", strings.Repeat("v", r.IntN(2000)))
	return name + ":" + oneOf(r, " ", " ", "", "\t", "  ") + value + oneOf(r, "", "", " ", "\t")
}

// framed adds the framing to lines and returns the body.
func framed(r *rand.Rand, lines *[]string) string {
	body := oneOf(r, "", "hello", "0\r\n\r\n", last, "GET / HTTP/1.1\r\n\r\n", "\r\n", strings.Repeat("z", r.IntN(30000)))
	switch r.IntN(3) {
	case 0:
		return ""
	case 1:
		*lines = append(*lines, oneOf(r, "Content-Length", "content-length", "CONTENT-LENGTH")+":"+oneOf(r, " ", "", "\t ")+fmt.Sprint(len(body)))
		return body
	}
	*lines = append(*lines, oneOf(r, "Transfer-Encoding", "transfer-encoding", "TRANSFER-ENCODING")+":"+oneOf(r, " ", "", "\t")+oneOf(r, "chunked", "Chunked", "CHUNKED"))
	var b strings.Builder
	for len(body) > 0 {
		n := min(len(body), 1+r.IntN(1+r.IntN(9000)))
		fmt.Fprintf(&b, oneOf(r, "%x", "%X", "%04x")+oneOf(r, "", "", ";a", ";a=b", `;a="b;c"`)+"\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	b.WriteString(oneOf(r, "0", "0", "000", "0;x") + "\r\n")
	for range r.IntN(3) {
		b.WriteString(oneOf(r, "X-T: 1", "X-T:", "Etag: \"x\"", "Content-Length: 7", "Transfer-Encoding: chunked", "Host: b", "X-Sum:\tabc ") + "\r\n")
	}
	return b.String() + "\r\n"
}
