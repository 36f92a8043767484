package bridge

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// appendRequest appends the header section of r as HTTP/1.1. Names are in canonical form and in
// alphabetical order: HTTP/2 has no case, and the standard library's map of headers has no order.
// It reports false if a byte would change where the header section or a header ends.
func appendRequest(dst []byte, r *http.Request, f http1.Framing) ([]byte, bool) {
	ok := isLineSafe(r.Method) && isLineSafe(r.RequestURI) && isLineSafe(r.Host)
	dst = http1.AppendRequestLine(dst, r.Method, r.RequestURI)
	dst = http1.AppendHeader(dst, "Host", r.Host)
	if declared := r.Header["Content-Length"]; !isLength(declared, r.ContentLength) {
		for _, value := range declared { // as received, for the parser to refuse
			ok = ok && isLineSafe(value)
			dst = http1.AppendHeader(dst, "Content-Length", value)
		}
		dst = http1.AppendHeader(dst, "Content-Length", strconv.FormatInt(r.ContentLength, 10)) // if they differ, the number may describe a body that never arrives
	} else {
		dst = http1.AppendFraming(dst, f)
	}
	dst, fieldsOK := appendHeaders(dst, r.Header, func(name, value string) bool {
		return name == protocolHeader || name == "Host" && value == r.Host || isHopByHop(name, value)
	})
	if names := keys(r.Trailer); f.Kind == http1.BodyChunked && len(names) > 0 {
		dst = http1.AppendHeader(dst, "Trailer", strings.Join(names, ", "))
	}
	return append(dst, "\r\n"...), ok && fieldsOK
}

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

// isLength reports whether a declared length, if there is one, is the number that the standard
// library derived from it. The standard library reads an invalid length as 0, takes the first of
// several, and sets 0 if the stream ended with its headers.
func isLength(declared []string, length int64) bool {
	if len(declared) == 0 {
		return true
	}
	n, err := strconv.ParseUint(declared[0], 10, 63)
	padded := len(declared[0]) > 1 && declared[0][0] == '0'
	return len(declared) == 1 && err == nil && int64(n) == length && !padded
}

// emptyBodyTimeout is how long a client may take to end a stream whose body is declared to be empty.
const emptyBodyTimeout = 10 * time.Second

// endsEmpty reports whether a body that is declared to be empty is empty: over HTTP/1.1, bytes
// after such a request would be another request. It waits for the end of the stream.
func endsEmpty(r *http.Request) bool {
	empty := make(chan bool, 1)
	go func() {
		var b [1]byte
		n, err := r.Body.Read(b[:])
		empty <- n == 0 && err == io.EOF
	}()
	t := time.NewTimer(emptyBodyTimeout)
	defer t.Stop()
	select {
	case is := <-empty:
		return is
	case <-r.Context().Done():
	case <-t.C:
	}
	return false
}

// framingOf returns the framing of the body of r over HTTP/1.1. The standard library enforces a
// declared length, if it is one (isLength).
func framingOf(r *http.Request) http1.Framing {
	switch {
	case r.ContentLength > 0:
		return http1.Framing{Kind: http1.BodyLength, Length: r.ContentLength}
	case r.ContentLength < 0:
		return http1.Framing{Kind: http1.BodyChunked}
	case r.Header["Content-Length"] != nil:
		return http1.Framing{Kind: http1.BodyLength}
	}
	return http1.Framing{}
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
