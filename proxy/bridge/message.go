package bridge

import (
	"net/http"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// generatedLimits are for header sections that the proxy wrote itself. Those were within the
// settings before, and only the proxy's own headers were added.
var generatedLimits = http1.Limits{HeaderBytes: 64 << 20, Headers: 1 << 20}

// isHopByHop reports whether a header concerns the connection or the framing, which the other side
// has its own of.
func isHopByHop(name, _ string) bool {
	switch name {
	case "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Keep-Alive", "Proxy-Connection":
		return true
	}
	return false
}

// appendResponse appends the header section of an upstream's response as HTTP/1.1. If no body is
// sent, it includes the length that the body would have. It reports false like appendRequest.
func appendResponse(dst []byte, r *http.Response, f http1.Framing) ([]byte, bool) {
	dst = http1.AppendStatusLine(dst, r.StatusCode, http.StatusText(r.StatusCode))
	dst = http1.AppendFraming(dst, f)
	if declared := r.Header["Content-Length"]; f.Kind == http1.BodyNone && len(declared) == 1 && isLineSafe(declared[0]) {
		dst = http1.AppendHeader(dst, "Content-Length", declared[0])
	}
	dst, ok := appendHeaders(dst, r.Header, isHopByHop)
	if names := keys(r.Trailer); f.Kind == http1.BodyChunked && len(names) > 0 {
		dst = http1.AppendHeader(dst, "Trailer", strings.Join(names, ", "))
		ok = ok && isLineSafe(strings.Join(names, ""))
	}
	return append(dst, "\r\n"...), ok
}

// appendHeaders appends the headers of h that skip does not report.
func appendHeaders(dst []byte, h http.Header, skip func(name, value string) bool) ([]byte, bool) {
	ok := true
	var room [32]string
	names := room[:0]
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range h[name] {
			if skip(name, value) {
				continue
			}
			ok = ok && isLineSafe(name) && isLineSafe(value)
			dst = http1.AppendHeader(dst, name, value)
		}
	}
	return dst, ok
}

// isLineSafe reports whether s cannot end a line.
func isLineSafe(s string) bool { return !strings.ContainsAny(s, "\r\n\x00") }

func keys(h http.Header) []string {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// trailerHeaders returns h as headers, without those that could end a line.
func trailerHeaders(h http.Header) []http1.Header {
	var headers []http1.Header
	for _, name := range keys(h) {
		for _, value := range h[name] {
			if isLineSafe(name) && isLineSafe(value) {
				headers = append(headers, http1.NewHeader(name, value))
			}
		}
	}
	return headers
}
