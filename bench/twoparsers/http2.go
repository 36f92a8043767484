package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A client may speak HTTP/2. What it says that no line of HTTP/1.1 can carry must not reach the upstream in
// another shape: line ends in names and values, upper case, targets and hosts with spaces, lengths that are
// not those of the body, cookies in crumbs, padding.

// frames returns the nth connection of a seed over HTTP/2: the bytes that one client sends.
func frames(seed, n uint64) []byte {
	r := rand.New(rand.NewPCG(seed, n))
	c := connection{r: r}
	c.f = http2.NewFramer(&c.out, nil)
	c.f.AllowIllegalWrites = true
	c.enc = hpack.NewEncoder(&c.block)
	c.out.WriteString(http2.ClientPreface)
	_ = c.f.WriteSettings()
	for i := range 1 + r.IntN(4) {
		c.request(uint32(2*i+1), oddFields(r))
	}
	c.request(99, []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a.example"}, {Name: ":path", Value: "/last"}, {Name: "x-wire", Value: "2"}})
	return c.out.Bytes()
}

// markOfHTTP2 is in the last request of each connection over HTTP/2.
const markOfHTTP2 = "X-Wire: 2\r\n"

// connection is what a client writes.
type connection struct {
	r     *rand.Rand
	out   bytes.Buffer
	f     *http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
}

// request writes one request in any frames.
func (c *connection) request(id uint32, fields []hpack.HeaderField) {
	r := c.r
	body := oneOf(r, "", "", "hello", "0\r\n\r\n", last, "\r\n", strings.Repeat("z", r.IntN(30000)))
	if len(body) > 0 && r.IntN(2) == 0 {
		n := fmt.Sprint(len(body))
		fields = append(fields, hpack.HeaderField{Name: "content-length", Value: oneOf(r, n, n, n, n, "0"+n, "+"+n, n+" ", "1", n+", "+n)})
	}
	trailers := r.IntN(6) == 0
	c.headers(id, fields, body == "" && !trailers)
	for len(body) > 0 {
		n := min(len(body), 1+r.IntN(9000))
		end := n == len(body) && !trailers
		if r.IntN(3) == 0 {
			_ = c.f.WriteDataPadded(id, end, []byte(body[:n]), make([]byte, r.IntN(200)))
		} else {
			_ = c.f.WriteData(id, end, []byte(body[:n]))
		}
		body = body[n:]
	}
	if trailers {
		c.headers(id, []hpack.HeaderField{{Name: oneOf(r, "x-t", "content-length", "host", "X-T", "x\r\nt"), Value: oneOf(r, "1", "a\r\nb: c", "")}}, true)
	}
}

// headers writes a header section in one frame or more.
func (c *connection) headers(id uint32, fields []hpack.HeaderField, end bool) {
	c.block.Reset()
	for _, f := range fields {
		_ = c.enc.WriteField(f)
	}
	b := slices.Clone(c.block.Bytes())
	cut := len(b)
	if c.r.IntN(3) == 0 {
		cut = c.r.IntN(len(b) + 1)
	}
	pad := uint8(0)
	if c.r.IntN(4) == 0 {
		pad = uint8(c.r.IntN(200))
	}
	_ = c.f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:cut], EndStream: end, EndHeaders: cut == len(b), PadLength: pad})
	if cut < len(b) {
		_ = c.f.WriteContinuation(id, true, b[cut:])
	}
}

// oddFields returns the fields of a request, usual ones and others.
func oddFields(r *rand.Rand) []hpack.HeaderField {
	field := func(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }
	path := oneOf(r, "/", "/a/b?c=d", "/%41%2f", "/ HTTP/1.1", "/\r\nX: y", "/\x00", "/a b", "/\xc3\xa9", "/#f", "*", "a", "http://a.example/", "/"+strings.Repeat("p", r.IntN(2000)), "/..", "/?")
	all := []hpack.HeaderField{
		field(":method", oneOf(r, "GET", "GET", "POST", "PUT", "HEAD", "OPTIONS", "get", "PROPFIND", "G T", "GET\r\n")), field(":scheme", oneOf(r, "http", "http", "http", "https")),
		field(":authority", oneOf(r, "a.example", "a.example", "a.example:8080", "b.example", "a.example\r\nX: y", "a b", "a,b", "[::1]", "u@a")), field(":path", path),
	}
	for range r.IntN(6) {
		all = append(all, field(
			oneOf(r, "x-a", "x_under", "accept", "cookie", "cookie", "host", "te", "trailer", "expect", "X-Upper", "x\r\ny", "x y", "x:y", "connection", "transfer-encoding", "upgrade", "content-length", "content.length", "via", "x-forwarded-for", "\x00"),
			oneOf(r, "", "1", "a=b", "trailers", "a.example", "chunked", "a\r\nb: c", "a\nb", "a\x00b", "\xe9", " lead", "tail ", "close", "100-continue", strings.Repeat("v", r.IntN(2000)))))
	}
	return all
}
