package forward

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// ResponseOptions say what the head to the caller has that the upstream's had not.
type ResponseOptions struct {
	// Framing is the body's as the caller gets it. For BodyNone the declared
	// length of a response to HEAD, or of a 304, stays (RFC 9110 section 8.6);
	// for BodyClose the head says "Connection: close".
	Framing http1.Framing
	Minor   int  // of the caller's HTTP version, 0 or 1
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

// gaveUpAbove is the reason that refers to another proxy's (package policy).
const gaveUpAbove = "upstream_gave_up"

// AppendResponseHead appends the status line, always HTTP/1.1 (RFC 9110 section
// 2.5), the fields and the empty line.
func AppendResponseHead(dst []byte, r *http1.Response, o *ResponseOptions) []byte {
	w := responseWriter{r: r, o: o}
	dst = http1.AppendStatusLine(dst, r.Status, r.Phrase)
	if r.HopNames {
		dst = w.appendUnnamed(dst)
	} else {
		dst = w.appendFields(dst, nil)
	}
	return append(w.appendMissing(dst), "\r\n"...)
}

// AppendInformational appends an interim response (1xx but 101) with the fields
// that are for the caller, and the empty line.
func AppendInformational(dst []byte, r *http1.Response) []byte {
	return AppendResponseHead(dst, r, &ResponseOptions{Minor: 1})
}

// responseWriter goes through the fields of one response and notes which of
// those that are ours it has met.
type responseWriter struct {
	r *http1.Response
	o *ResponseOptions

	framed, via, attempts, reason bool
}

// appendUnnamed is appendFields where Connection names fields.
func (w *responseWriter) appendUnnamed(dst []byte) []byte {
	var buf [maxOptions][]byte
	return w.appendFields(dst, connectionOptions(buf[:0], w.r.Fields))
}

func (w *responseWriter) appendFields(dst []byte, named [][]byte) []byte {
	fields := w.r.Fields
	for i := range fields {
		f := &fields[i]
		switch responseFates[f.ID] {
		case passes:
			if named == nil || f.ID != http1.NameOther || !isNamed(named, f.Name) {
				dst = f.AppendLine(dst)
			}
		case isOurs:
			dst = w.appendOurs(dst, f, fields[i+1:])
		}
	}
	return dst
}

// responseFates say what becomes of a response's fields.
var responseFates = fatesOf(nil, []http1.Name{
	http1.ContentLength, http1.TransferEncoding, http1.Trailer, http1.Via,
	http1.XRetryproxyAttempts, http1.XRetryproxyReason, http1.XRetryproxyOther,
})

func (w *responseWriter) appendOurs(dst []byte, f *http1.Field, rest []http1.Field) []byte {
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
		return http1.AppendIntField(dst, "Content-Length", w.r.Length)
	}
	return http1.AppendFraming(dst, w.o.Framing)
}

func (w *responseWriter) appendVia(dst []byte, f *http1.Field, rest []http1.Field) []byte {
	if w.via {
		return dst
	}
	w.via = true
	dst = appendList(dst, f, rest)
	return append(appendReceived(appendComma(dst), w.r.Minor, w.o.Via), "\r\n"...)
}

// appendAttempts writes the higher number of attempts, once.
func (w *responseWriter) appendAttempts(dst []byte, f *http1.Field) []byte {
	if w.attempts {
		return dst
	}
	w.attempts = true
	if n, ok := http1.ParseUint(f.Value); w.o.Attempts > 0 && (!ok || n < int64(w.o.Attempts)) {
		return http1.AppendIntField(dst, f.Name, int64(w.o.Attempts))
	}
	return f.AppendLine(dst)
}

func (w *responseWriter) appendReason(dst []byte, f *http1.Field) []byte {
	if w.reason {
		return dst
	}
	w.reason = true
	if w.o.Reason != "" && w.o.Reason != gaveUpAbove {
		return http1.AppendField(dst, f.Name, w.o.Reason)
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
		dst = http1.AppendIntField(dst, "X-Retryproxy-Attempts", int64(w.o.Attempts))
	}
	if w.o.Reason != "" && !w.reason {
		dst = http1.AppendField(dst, "X-Retryproxy-Reason", w.o.Reason)
	}
	if w.o.Fallback != "" {
		dst = http1.AppendField(dst, fallbackName, w.o.Fallback)
	}
	return w.appendConnection(dst)
}

// appendConnection writes the fields about the connection to the caller. The
// Upgrade of a 426 is what the response is about (RFC 9110 section 15.5.22).
func (w *responseWriter) appendConnection(dst []byte) []byte {
	o := w.o
	if o.Upgrade {
		dst = append(dst, "Connection: upgrade\r\n"...)
		return http1.AppendField(dst, "Upgrade", w.r.Upgrade)
	}
	if w.r.Status == 426 {
		if to := w.r.Get(http1.Upgrade); len(to) > 0 {
			dst = append(dst, "Connection: upgrade\r\n"...)
			dst = http1.AppendField(dst, "Upgrade", to)
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
