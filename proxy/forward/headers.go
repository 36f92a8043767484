package forward

import (
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// handling is how a header is forwarded, by its name alone.
type handling uint8

const (
	passThrough   handling = iota // forwarded as received
	dropHeader                    // not forwarded: it is for this connection, or for us
	rewriteHeader                 // depends on more than the name: see appendRewritten
)

// handlingByName returns the handling of each name. Hop-by-hop headers and end are dropped,
// ours are rewritten.
func handlingByName(end, ours []http1.HeaderName) (t [256]handling) {
	for _, n := range []http1.HeaderName{
		http1.Connection, http1.KeepAlive, http1.ProxyConnection, http1.TE, http1.Upgrade, http1.HTTP2Settings,
		http1.ProxyAuthenticate, http1.ProxyAuthenticationInfo, http1.ProxyAuthorization,
	} {
		t[n] = dropHeader
	}
	for _, n := range end {
		t[n] = dropHeader
	}
	for _, n := range ours {
		t[n] = rewriteHeader
	}
	return t
}

// maxOptions limits how many names in Connection are considered, and with the limit on
// headers the work: a header section cannot contain many more. A header listed beyond it is
// forwarded, which does no harm.
const maxOptions = 64

// connectionOptions appends the options in Connection to dst, up to its capacity.
func connectionOptions(dst [][]byte, headers []http1.Header) [][]byte {
	for i := range headers {
		if headers[i].ID != http1.Connection {
			continue
		}
		for e, rest := http1.NextToken(headers[i].Value); e != nil; e, rest = http1.NextToken(rest) {
			if len(dst) == cap(dst) {
				return dst
			}
			dst = append(dst, e)
		}
	}
	return dst
}

func isListed(named [][]byte, name []byte) bool {
	for _, n := range named {
		if http1.EqualFoldBytes(n, name) {
			return true
		}
	}
	return false
}

// announcesFraming reports whether a Trailer header names a header that is not allowed in a
// trailer section and for which net/http refuses the whole message. Other readers accept
// it, so the message would have two readings. Nothing is lost by dropping Trailer: it is a
// hint, and such a trailer is not forwarded.
func announcesFraming(trailer []byte) bool {
	return http1.HasToken(trailer, "content-length") || http1.HasToken(trailer, "transfer-encoding") || http1.HasToken(trailer, "trailer")
}

// appendList appends one header with the values of f, of the headers in rest with the same id,
// and last, if they are not empty, as one list (RFC 9110 section 5.3).
func (w *requestWriter) appendList(dst []byte, f *http1.Header, rest []http1.Header, last string) []byte {
	if w.form == wire.Block {
		list := appendElements([]byte(": "), f, rest, last)
		return wire.AppendHeader(w.form, dst, f.Name, list[len(": "):])
	}
	return append(appendElements(append(append(dst, f.Name...), ": "...), f, rest, last), "\r\n"...)
}

// appendElements appends the elements of a list behind ": ".
func appendElements(dst []byte, f *http1.Header, rest []http1.Header, last string) []byte {
	dst = append(dst, f.Value...)
	for i := range rest {
		if rest[i].ID == f.ID && len(rest[i].Value) > 0 {
			dst = append(appendComma(dst), rest[i].Value...)
		}
	}
	if last != "" {
		dst = append(appendComma(dst), last...)
	}
	return dst
}

// appendComma appends a list separator, except at the start of the list.
func appendComma(dst []byte) []byte {
	if n := len(dst); dst[n-1] == ' ' { // ends in ": "; values do not end in a space
		return dst
	}
	return append(dst, ", "...)
}

func isAlnum(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// IsGRPC reports whether a Content-Type, of a request or a response, is that of gRPC over
// HTTP/2, with or without a subtype ("application/grpc+proto"). gRPC-Web is not.
func IsGRPC(contentType []byte) bool {
	const name = "application/grpc"
	if len(contentType) < len(name) || !http1.EqualFold(contentType[:len(name)], name) {
		return false
	}
	if len(contentType) == len(name) {
		return true
	}
	c := contentType[len(name)]
	return c == '+' || c == ';' || c == ' '
}

// AppendGRPCAttempts appends grpc-previous-rpc-attempts (gRFC A6): the number of earlier
// attempts of a call, the client's as it declared them and ours. 0 appends nothing.
func AppendGRPCAttempts(form wire.Form, dst []byte, before int) []byte {
	if before <= 0 {
		return dst
	}
	return wire.AppendInt(form, dst, "grpc-previous-rpc-attempts", int64(before))
}

// AppendGRPCMessage appends text as a value for grpc-message: everything except printable
// ASCII without "%" is percent-encoded (gRPC over HTTP/2, "Responses").
func AppendGRPCMessage(dst []byte, text string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(text) {
		if c := text[i]; c >= ' ' && c <= '~' && c != '%' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		}
	}
	return dst
}

// TraceContext returns the request's traceparent, nil if there is none or more than one,
// and its tracestate: all headers of that name as one list (W3C Trace Context, sections 3.2
// and 3.3). They may be spans of the request.
func TraceContext(r *http1.Request) (parent, state []byte) {
	parents, states := 0, 0
	for i := range r.Headers {
		switch f := &r.Headers[i]; f.ID {
		case http1.Traceparent:
			parents++
			parent = f.Value
		case http1.Tracestate:
			if states++; states == 1 {
				state = f.Value
				continue
			}
			joined := append(append([]byte(nil), state...), ", "...)
			state = append(joined, f.Value...)
		}
	}
	if parents != 1 {
		return nil, nil
	}
	return parent, state
}

// AppendClientTrace appends the headers traceparent and tracestate as the client sent them,
// for a header section written with Settings.OmitTrace.
func AppendClientTrace(form wire.Form, dst []byte, r *http1.Request) []byte {
	for i := range r.Headers {
		if f := &r.Headers[i]; f.ID == http1.Traceparent || f.ID == http1.Tracestate {
			dst = wire.AppendLine(form, dst, f)
		}
	}
	return dst
}

// TraceID returns the trace id of a traceparent (W3C Trace Context section 3.2.2.3), 32
// lower-case hexadecimal digits; "" if it is not valid.
func TraceID(parent []byte) string {
	const begin, end, whole = len("00-"), len("00-") + 32, 55
	if len(parent) < whole || parent[begin-1] != '-' || parent[end] != '-' {
		return ""
	}
	zero := true
	for _, c := range parent[begin:end] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
		zero = zero && c == '0'
	}
	if zero {
		return ""
	}
	return string(parent[begin:end])
}
