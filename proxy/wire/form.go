package wire

import (
	"strconv"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// Form is how the fields of a header section are written.
type Form uint8

// The forms.
const (
	Lines Form = iota // HTTP/1.1: "Name: value" CRLF
	Block             // HTTP/2: a header block without its pseudo-headers, which stand before it
)

// bytestring is the type of names and values. They contain no CR, LF or NUL, as everything that package http1
// has parsed or composed.
type bytestring interface{ ~[]byte | ~string }

// AppendHeader appends a field to a section in the form f.
func AppendHeader[N, V bytestring](f Form, dst []byte, name N, value V) []byte {
	if f == Block {
		return appendField(dst, []byte(name), value)
	}
	return http1.AppendHeader(dst, name, value)
}

// AppendLine appends a field as received.
func AppendLine(f Form, dst []byte, h *http1.Header) []byte {
	if f == Block {
		return appendField(dst, h.Name, h.Value)
	}
	return h.AppendLine(dst)
}

// AppendLines appends fields as received.
func AppendLines(f Form, dst []byte, headers []http1.Header) []byte {
	for i := range headers {
		dst = AppendLine(f, dst, &headers[i])
	}
	return dst
}

// AppendInt appends a field with n in decimal.
func AppendInt[N bytestring](f Form, dst []byte, name N, n int64) []byte {
	if f == Block {
		var digits [20]byte
		return appendField(dst, []byte(name), strconv.AppendInt(digits[:0], n, 10))
	}
	return http1.AppendIntHeader(dst, name, n)
}

// AppendFraming appends the field that tells how long a body is, if there is one.
func AppendFraming(f Form, dst []byte, b http1.Framing) []byte {
	switch {
	case f == Lines:
		return http1.AppendFraming(dst, b)
	case b.Kind == http1.BodyLength, b.Kind == http1.BodyStream && b.Length >= 0:
		return AppendInt(f, dst, "content-length", b.Length)
	}
	return dst
}
