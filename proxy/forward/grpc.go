package forward

import (
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// IsGRPC reports whether a Content-Type, of a request or a response, is that of gRPC over
// HTTP/2. gRPC-Web is not.
func IsGRPC(contentType []byte) bool { return isGRPC(contentType) }

// AppendGRPCAttempts appends grpc-previous-rpc-attempts (gRFC A6): the number of earlier
// attempts of a call, the client's as it declared them and ours. 0 appends nothing.
func AppendGRPCAttempts(dst []byte, before int) []byte {
	if before <= 0 {
		return dst
	}
	return http1.AppendIntHeader(dst, "grpc-previous-rpc-attempts", int64(before))
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
