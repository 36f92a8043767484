package http2

import (
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

var noTime time.Time

// fieldCost is what a field counts beyond its bytes (RFC 9113 section 6.5.2). It keeps many empty fields
// from being cheap.
const fieldCost = 32

// fields are those of a header block.
type fields struct {
	list     []hpack.HeaderField
	left     int // of what they may count
	tooLarge bool
}

func (f *fields) reset(limit int) {
	clear(f.list)
	f.list, f.left, f.tooLarge = f.list[:0], limit, false
}

// mostKept is how many fields have their room kept for the next block of an idle connection.
const mostKept = 64

// release drops the fields, which an idle connection need not hold.
func (f *fields) release() {
	clear(f.list)
	if f.list = f.list[:0]; cap(f.list) > mostKept {
		f.list = nil
	}
}

// add stores a field, unless they are too large together. Then the rest is decoded and dropped, since the
// decoder's table depends on it.
func (f *fields) add(h hpack.HeaderField) {
	f.left -= len(h.Name) + len(h.Value) + fieldCost
	if f.tooLarge = f.tooLarge || f.left < 0; !f.tooLarge {
		f.list = append(f.list, h)
	}
}

// validTrailers reports whether the fields may be the trailers of a request.
func (f *fields) validTrailers() bool {
	for i := range f.list {
		if h := &f.list[i]; strings.HasPrefix(h.Name, ":") || !validField(h) {
			return false
		}
	}
	return !f.tooLarge
}

// byteSet is a set of bytes.
type byteSet [256]bool

var (
	endsLine  = byteSet{'\r': true, '\n': true, 0: true}
	notInLine = byteSet{'\r': true, '\n': true, 0: true, ' ': true, '\t': true}
	notInName = func() (s byteSet) {
		for b := range s {
			s[b] = b <= ' ' || b >= 0x7f || 'A' <= b && b <= 'Z' || b == ':'
		}
		return s
	}()
)

// hasAny reports whether text has a byte of the set. Package strings makes a set anew for each text.
func hasAny(text string, set *byteSet) bool {
	for i := range len(text) {
		if set[text[i]] {
			return true
		}
	}
	return false
}

// validField reports whether a field may be in a message (RFC 9113 sections 8.2.1 and 8.2.2).
func validField(h *hpack.HeaderField) bool {
	if h.Name == "" || hasAny(h.Value, &endsLine) || hasAny(h.Name, &notInName) {
		return false
	}
	return !isHopByHop(h.Name) && (h.Name != "te" || h.Value == "trailers")
}

// request is what a header block says about a request.
type request struct {
	method, scheme, path, authority, protocol string

	host    string
	hasHost bool
	lengths int   // Content-Length fields
	length  int64 // if there is one; below 0 otherwise

	contradicts bool // the lengths are not valid, not the same, or not that of the body
	cookies     int
	grpc        bool
}

// parse reads the pseudo-headers and what decides about the framing. It reports false for a malformed
// request (RFC 9113 section 8.3.1).
func (q *request) parse(f *fields) bool {
	q.length = -1
	regular := false
	for i := range f.list {
		h := &f.list[i]
		if strings.HasPrefix(h.Name, ":") {
			if regular || !q.pseudo(h) {
				return false
			}
			continue
		}
		regular = true
		if !validField(h) {
			return false
		}
		switch h.Name {
		case "host":
			if q.hasHost && h.Value != q.host {
				return false
			}
			q.host, q.hasHost = h.Value, true
		case "content-length":
			n, ok := http1.ParseUint([]byte(h.Value))
			ok = ok && int64(n) >= 0 && (len(h.Value) == 1 || h.Value[0] != '0') && (q.lengths == 0 || int64(n) == q.length)
			q.contradicts = q.contradicts || !ok
			q.length = int64(n)
			q.lengths++
		case "cookie":
			q.cookies++
		case "content-type":
			q.grpc = strings.HasPrefix(h.Value, "application/grpc")
		}
	}
	return q.valid()
}

// pseudo reads a pseudo-header. Each comes once.
func (q *request) pseudo(h *hpack.HeaderField) bool {
	var to *string
	switch h.Name {
	case ":method":
		to = &q.method
	case ":scheme":
		to = &q.scheme
	case ":path":
		to = &q.path
	case ":authority":
		to = &q.authority
	case ":protocol":
		to = &q.protocol
	default:
		return false
	}
	if *to != "" || h.Value == "" || hasAny(h.Value, &notInLine) {
		return false
	}
	*to = h.Value
	return true
}

func (q *request) valid() bool {
	switch {
	case q.method == "":
		return false
	case q.method == "CONNECT" && q.protocol == "":
		return q.scheme == "" && q.path == "" && q.authority != ""
	case q.protocol != "" && q.method != "CONNECT":
		return false
	}
	return (q.scheme == "http" || q.scheme == "https") && (q.path != "" && q.path[0] == '/' || q.path == "*" && q.method == "OPTIONS")
}

// opensWebSocket reports whether the request is an extended CONNECT for a WebSocket (RFC 8441 section 4).
// Other protocols stay CONNECT and are refused.
func (q *request) opensWebSocket() bool { return q.protocol == "websocket" }

// appendHead appends the request's headers as HTTP/1.1, with the framing of its body.
func (q *request) appendHead(dst []byte, f *fields, framing http1.Framing) []byte {
	target, method := q.path, q.method
	if method == "CONNECT" {
		target = q.authority
	}
	if q.opensWebSocket() {
		method, target = "GET", q.path
	}
	dst = http1.AppendRequestLine(dst, method, target)
	host := q.authority
	if host == "" {
		host = q.host
	}
	if host != "" || q.hasHost {
		dst = http1.AppendHeader(dst, "Host", host)
	}
	switch {
	case q.opensWebSocket():
		dst = appendHandshake(dst)
	case q.contradicts: // as received, and one more with which they cannot agree, for the parser to refuse
		for i := range f.list {
			if f.list[i].Name == "content-length" {
				dst = http1.AppendHeader(dst, "Content-Length", f.list[i].Value)
			}
		}
		dst = http1.AppendHeader(dst, "Content-Length", "none")
	default:
		dst = http1.AppendFraming(dst, framing)
	}
	for i := range f.list {
		h := &f.list[i]
		switch {
		case h.Name[0] == ':', h.Name == "content-length", h.Name == "cookie" && q.cookies > 1:
		case h.Name == "host" && h.Value == host:
		case q.opensWebSocket() && h.Name == "sec-websocket-key":
		default:
			dst = append(appendCanonical(dst, h.Name), ": "...)
			dst = append(append(dst, h.Value...), "\r\n"...)
		}
	}
	if q.cookies > 1 {
		dst = appendCookies(dst, f)
	}
	return append(dst, "\r\n"...)
}

// appendCookies joins the crumbs of a cookie (RFC 9113 section 8.2.3).
func appendCookies(dst []byte, f *fields) []byte {
	dst = append(dst, "Cookie: "...)
	first := true
	for i := range f.list {
		if f.list[i].Name != "cookie" {
			continue
		}
		if !first {
			dst = append(dst, "; "...)
		}
		first = false
		dst = append(dst, f.list[i].Value...)
	}
	return append(dst, "\r\n"...)
}

// appendCanonical appends a name with its words in upper case, as most of HTTP/1.1 writes it.
func appendCanonical(dst []byte, name string) []byte {
	upper := true
	for i := 0; i < len(name); i++ {
		b := name[i]
		if upper && 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		upper = b == '-'
		dst = append(dst, b)
	}
	return dst
}

// appendTrailers appends the last chunk with the trailers.
func appendTrailers(dst []byte, f *fields) []byte {
	dst = append(dst, "0\r\n"...)
	for i := range f.list {
		h := &f.list[i]
		dst = append(appendCanonical(dst, h.Name), ": "...)
		dst = append(append(dst, h.Value...), "\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// appendLower appends name in lower case, which HTTP/2 requires.
func appendLower(dst, name []byte) []byte {
	n := len(dst)
	dst = append(dst, name...)
	for i, b := range dst[n:] {
		if 'A' <= b && b <= 'Z' {
			dst[n+i] = b + 'a' - 'A'
		}
	}
	return dst
}
