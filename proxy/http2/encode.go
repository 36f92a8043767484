package http2

import (
	"strconv"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// Header blocks are encoded without the dynamic table and without Huffman codes: both cost more time than
// the bytes that they save are worth next to a body. HAProxy does the same.

// Indexes in the static table (RFC 7541 appendix A) of the fields of responses.
var (
	indexedStatus = map[int]byte{200: 8, 204: 9, 206: 10, 304: 11, 400: 12, 404: 13, 500: 14}
	indexedNames  = map[string]byte{
		"accept-ranges": 18, "access-control-allow-origin": 20, "age": 21, "allow": 22, "cache-control": 24,
		"content-disposition": 25, "content-encoding": 26, "content-language": 27, "content-length": 28,
		"content-location": 29, "content-range": 30, "content-type": 31, "date": 33, "etag": 34, "expires": 36,
		"last-modified": 44, "link": 45, "location": 46, "proxy-authenticate": 48, "refresh": 52,
		"retry-after": 53, "server": 54, "set-cookie": 55, "strict-transport-security": 56,
		"transfer-encoding": 57, "vary": 59, "via": 60, "www-authenticate": 61,
	}
)

const indexStatus = 8 // of the name :status

// encode encodes a header section; status is 0 for trailers. skip says which headers are left out. The
// values have no CR, LF or NUL, since a parser returned them. The block is valid until the next call. It is
// called with mu held.
func (c *link) encode(status int, headers []http1.Header, skip func(*http1.Header) bool) []byte {
	b := c.beginBlock()
	if status > 0 {
		b = appendStatus(b, status)
	}
	for i := range headers {
		if h := &headers[i]; !skip(h) {
			b = appendField(b, h.Name, h.Value)
		}
	}
	if c.encoded = b; cap(b) > buffer.Small {
		c.encoded = nil // an idle connection holds little
	}
	return b
}

// beginBlock begins a header block. It is called with mu held.
func (c *link) beginBlock() []byte {
	if !c.tableShrinks {
		return c.encoded[:0]
	}
	c.tableShrinks = false
	return append(c.encoded[:0], 0x20) // dynamic table size update to 0 (RFC 7541 section 6.3): none is used
}

func appendStatus(b []byte, status int) []byte {
	if i := indexedStatus[status]; i > 0 {
		return append(b, 0x80|i)
	}
	b = append(b, indexStatus, 3)
	return strconv.AppendInt(b, int64(status), 10)
}

// appendField appends a literal field without indexing (RFC 7541 section 6.2.2). The name becomes lower case.
func appendField(b, name, value []byte) []byte {
	var scratch [64]byte
	lower := appendLower(scratch[:0], name)
	if i := indexedNames[string(lower)]; i > 0 {
		b = appendInteger(b, 0, 4, int(i))
	} else {
		b = appendString(append(b, 0), lower)
	}
	return appendString(b, value)
}

// appendString appends a string without a Huffman code (RFC 7541 section 5.2).
func appendString(b, s []byte) []byte { return append(appendInteger(b, 0, 7, len(s)), s...) }

// appendInteger appends n with a prefix of some bits behind those of first (RFC 7541 section 5.1).
func appendInteger(b []byte, first byte, bits uint, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(most))
	for n -= most; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}
