package http2

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
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

// validTrailers reports whether the fields may be the trailers of a request. Nobody looks at their bytes again.
func (f *fields) validTrailers() bool {
	for i := range f.list {
		if h := &f.list[i]; !isPlain(h) || !validField(h) {
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
	trailers    bool // some are announced
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
		case "trailer":
			q.trailers = true
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

// appendRecord appends the record of the request. A body ends with its stream, unless it is declared and has
// no trailers.
func (q *request) appendRecord(dst []byte, f *fields, ends bool) []byte {
	target, method := q.path, q.method
	if method == "CONNECT" {
		target = q.authority
	}
	mark := http1.AsDeclared
	switch {
	case q.opensWebSocket():
		method, target = "GET", q.path
	case !ends && (q.length < 0 || q.trailers && q.length > 0):
		mark = http1.EndsStream
	}
	r := recordOf{dst: http1.AppendRequestRecord(dst, method, target, mark), start: len(dst)}
	host := q.authority
	if host == "" {
		host = q.host
	}
	if host != "" || q.hasHost {
		r.add("host", host)
	}
	switch {
	case q.opensWebSocket():
		r.addHandshake()
	case q.contradicts: // as received, and one more with which they cannot agree, so that the request is refused
		for i := range f.list {
			if f.list[i].Name == "content-length" {
				r.add("content-length", f.list[i].Value)
			}
		}
		r.add("content-length", "none")
	case q.length >= 0:
		r.add("content-length", strconv.FormatInt(q.length, 10))
	}
	for i := range f.list {
		h := &f.list[i]
		switch {
		case h.Name[0] == ':', h.Name == "content-length", h.Name == "cookie" && q.cookies > 1:
		case h.Name == "host" && h.Value == host:
		case q.opensWebSocket() && h.Name == "sec-websocket-key":
		default:
			r.add(h.Name, h.Value)
		}
	}
	if q.cookies > 1 {
		r.add("cookie", f.cookies())
	}
	return r.end()
}

// recordOf is a record that is being made.
type recordOf struct {
	dst    []byte
	start  int
	fields int
}

func (r *recordOf) add(name, value string) {
	r.dst = http1.AppendRecordField(r.dst, name, value)
	r.fields++
}

func (r *recordOf) end() []byte { return http1.EndRecord(r.dst, r.start, r.fields) }

// addHandshake adds what the HTTP/1.1 handshake of a WebSocket has besides the request's own headers (RFC
// 8441 section 5, RFC 6455 section 4.1).
func (r *recordOf) addHandshake() {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	r.add("connection", "Upgrade")
	r.add("upgrade", "websocket")
	r.add("Sec-WebSocket-Key", base64.StdEncoding.EncodeToString(b[:]))
}

// cookies joins the crumbs of a cookie (RFC 9113 section 8.2.3).
func (f *fields) cookies() string {
	var crumbs []string
	for i := range f.list {
		if f.list[i].Name == "cookie" {
			crumbs = append(crumbs, f.list[i].Value)
		}
	}
	return strings.Join(crumbs, "; ")
}

// trailers returns the fields as trailers.
func (f *fields) trailers() []http1.Header {
	list := make([]http1.Header, 0, len(f.list))
	for i := range f.list {
		h := http1.NewHeader(http1.Capitals(f.list[i].Name), strings.Trim(f.list[i].Value, " \t"))
		if !h.ID.TrailerForbidden() {
			list = append(list, h)
		}
	}
	return list
}
