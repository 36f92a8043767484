package forward

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// ResponseOptions say what the header section to the client has that the upstream's had not.
type ResponseOptions struct {
	// Framing is the body's as the client gets it. For BodyNone the declared
	// length of a response to HEAD, or of a 304, stays (RFC 9110 section 8.6);
	// for BodyClose the header section says "Connection: close".
	Framing http1.Framing
	Minor   int  // of the client's HTTP version, 0 or 1
	Close   bool // the connection ends after the response
	Upgrade bool // a 101: the connection becomes a tunnel; Framing and Close are ignored
	Via     string

	// Attempts and Reason go into X-Retryproxy-Attempts and -Reason; 0 and ""
	// leave them to what an inner proxy said. Of two numbers of attempts the
	// higher is sent, of two reasons ours, except that upstream_gave_up only
	// says that the inner one has a reason.
	Attempts int
	Reason   string

	// Fallback goes into X-Retryproxy-Fallback, in place of what an inner
	// proxy said; "" leaves that as it is.
	Fallback string
}

var fallbackName = []byte("X-Retryproxy-Fallback")

// reasonUpstreamGaveUp is the reason that refers to another proxy's (package policy).
const reasonUpstreamGaveUp = "upstream_gave_up"

// AppendResponseHeaders appends the status line, always HTTP/1.1 (RFC 9110 section
// 2.5), the fields and the empty line.
func AppendResponseHeaders(dst []byte, r *http1.Response, o *ResponseOptions) []byte {
	w := responseWriter{r: r, o: o}
	dst = http1.AppendStatusLine(dst, r.Status, r.Phrase)
	if r.HasHopByHopNames {
		dst = w.appendExceptConnectionListed(dst)
	} else {
		dst = w.appendHeaders(dst, nil)
	}
	return append(w.appendMissing(dst), "\r\n"...)
}

// AppendInformational appends an interim response (1xx but 101) with the fields
// that are for the client, and the empty line.
func AppendInformational(dst []byte, r *http1.Response) []byte {
	return AppendResponseHeaders(dst, r, &ResponseOptions{Minor: 1})
}

// responseWriter goes through the fields of one response and notes which of
// those that are ours it has met.
type responseWriter struct {
	r *http1.Response
	o *ResponseOptions

	framed, via, attempts, reason bool
}

// appendExceptConnectionListed is appendHeaders where Connection names fields.
func (w *responseWriter) appendExceptConnectionListed(dst []byte) []byte {
	var buf [maxOptions][]byte
	return w.appendHeaders(dst, connectionOptions(buf[:0], w.r.Headers))
}

func (w *responseWriter) appendHeaders(dst []byte, named [][]byte) []byte {
	headers := w.r.Headers
	for i := range headers {
		f := &headers[i]
		switch responseHandling[f.ID] {
		case passThrough:
			if named == nil || f.ID != http1.OtherHeader || !isListed(named, f.Name) {
				dst = f.AppendLine(dst)
			}
		case rewriteHeader:
			dst = w.appendRewritten(dst, f, headers[i+1:])
		}
	}
	return dst
}

// responseHandling say what becomes of a response's fields.
var responseHandling = handlingByName(nil, []http1.HeaderName{
	http1.ContentLength, http1.TransferEncoding, http1.Trailer, http1.Via,
	http1.XRetryproxyAttempts, http1.XRetryproxyReason, http1.XRetryproxyOther,
})

func (w *responseWriter) appendRewritten(dst []byte, f *http1.Header, rest []http1.Header) []byte {
	switch f.ID {
	case http1.ContentLength, http1.TransferEncoding:
		return w.appendFraming(dst)
	case http1.Trailer:
		if w.o.Framing.Kind != http1.BodyChunked || announcesFraming(f.Value) {
			return dst
		}
	case http1.Via:
		if w.o.Via != "" {
			return w.appendVia(dst, f, rest)
		}
	case http1.XRetryproxyAttempts:
		return w.appendAttempts(dst, f)
	case http1.XRetryproxyReason:
		return w.appendReason(dst, f)
	case http1.XRetryproxyOther:
		if w.o.Fallback != "" && bytes.EqualFold(f.Name, fallbackName) {
			return dst
		}
	}
	return f.AppendLine(dst)
}

// appendFraming writes the framing field, once. 1xx and 204 never have one
// (RFC 9110 section 8.6, RFC 9112 section 6.1).
func (w *responseWriter) appendFraming(dst []byte) []byte {
	if w.framed {
		return dst
	}
	w.framed = true
	switch {
	case w.r.Status < 200 || w.r.Status == 204 || w.o.Upgrade:
		return dst
	case w.o.Framing.Kind == http1.BodyNone && w.r.Length >= 0:
		return http1.AppendIntHeader(dst, "Content-Length", w.r.Length)
	}
	return http1.AppendFraming(dst, w.o.Framing)
}

func (w *responseWriter) appendVia(dst []byte, f *http1.Header, rest []http1.Header) []byte {
	if w.via {
		return dst
	}
	w.via = true
	dst = appendList(dst, f, rest)
	return append(appendReceived(appendComma(dst), w.r.Minor, w.o.Via), "\r\n"...)
}

// appendAttempts writes the higher number of attempts, once.
func (w *responseWriter) appendAttempts(dst []byte, f *http1.Header) []byte {
	if w.attempts {
		return dst
	}
	w.attempts = true
	if n, ok := http1.ParseUint(f.Value); w.o.Attempts > 0 && (!ok || n < int64(w.o.Attempts)) {
		return http1.AppendIntHeader(dst, f.Name, int64(w.o.Attempts))
	}
	return f.AppendLine(dst)
}

func (w *responseWriter) appendReason(dst []byte, f *http1.Header) []byte {
	if w.reason {
		return dst
	}
	w.reason = true
	if w.o.Reason != "" && w.o.Reason != reasonUpstreamGaveUp {
		return http1.AppendHeader(dst, f.Name, w.o.Reason)
	}
	return f.AppendLine(dst)
}

// appendMissing writes what is ours and had no place among the fields.
func (w *responseWriter) appendMissing(dst []byte) []byte {
	if !w.framed {
		dst = w.appendFraming(dst)
	}
	if w.o.Via != "" && !w.via {
		dst = append(dst, "Via: "...)
		dst = append(appendReceived(dst, w.r.Minor, w.o.Via), "\r\n"...)
	}
	switch {
	case w.o.Attempts <= 0 || w.attempts:
	case w.o.Attempts == 1: // most are that
		dst = append(dst, "X-Retryproxy-Attempts: 1\r\n"...)
	default:
		dst = http1.AppendIntHeader(dst, "X-Retryproxy-Attempts", int64(w.o.Attempts))
	}
	if w.o.Reason != "" && !w.reason {
		dst = http1.AppendHeader(dst, "X-Retryproxy-Reason", w.o.Reason)
	}
	if w.o.Fallback != "" {
		dst = http1.AppendHeader(dst, fallbackName, w.o.Fallback)
	}
	return w.appendConnection(dst)
}

// appendConnection writes the fields about the connection to the client. The
// Upgrade of a 426 is what the response is about (RFC 9110 section 15.5.22).
func (w *responseWriter) appendConnection(dst []byte) []byte {
	o := w.o
	if o.Upgrade {
		dst = append(dst, "Connection: upgrade\r\n"...)
		return http1.AppendHeader(dst, "Upgrade", w.r.Upgrade)
	}
	if w.r.Status == 426 {
		if to := w.r.Get(http1.Upgrade); len(to) > 0 {
			dst = append(dst, "Connection: upgrade\r\n"...)
			dst = http1.AppendHeader(dst, "Upgrade", to)
		}
	}
	switch {
	case o.Close || o.Framing.Kind == http1.BodyClose:
		dst = append(dst, "Connection: close\r\n"...)
	case o.Minor == 0:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return dst
}
