package forward

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// ResponseOptions is what the header section to the client has in addition to the
// upstream's.
type ResponseOptions struct {
	// Form is that of the client's wire. A block has no status and nothing about the connection.
	Form wire.Form
	// Framing is the framing of the body that the client gets. With BodyNone the declared
	// length of a response to HEAD, or of a 304, is kept (RFC 9110 section 8.6). With
	// BodyClose the header section has "Connection: close".
	Framing http1.Framing
	Minor   int  // of the client's HTTP version, 0 or 1
	Close   bool // the connection ends after the response
	Upgrade bool // a 101: the connection becomes a tunnel; Framing and Close are ignored

	// Attempts and Reason are the values of X-Retryproxy-Attempts and -Reason; 0 and ""
	// keep those of an inner proxy. Of two numbers of attempts the higher is sent. Of two
	// reasons ours is sent, except upstream_gave_up, which only refers to the inner one.
	Attempts int
	Reason   string

	// NoRetry writes X-Should-Retry: false in place of the upstream's. The vendors' clients of
	// OpenAI, Anthropic and others obey it.
	NoRetry bool

	// Fallback is the value of X-Retryproxy-Fallback and replaces that of an inner proxy;
	// "" keeps it.
	Fallback string

	// RequestID is the value of X-Request-Id if the upstream sent none; empty adds none.
	RequestID []byte

	// Date is the value of Date if the upstream sent none (RFC 9110 section 6.6.1); nil adds none.
	Date []byte

	Changes HeaderChanges // of the configuration

	// Reports writes what the proxy reports even if Changes hides it.
	Reports bool
}

var (
	attemptsName  = []byte("X-Retryproxy-Attempts")
	reasonName    = []byte("X-Retryproxy-Reason")
	fallbackName  = []byte("X-Retryproxy-Fallback")
	requestIDName = []byte("X-Request-Id")
	dateName      = []byte("Date")

	shouldRetryName = []byte("X-Should-Retry")
)

// reasonUpstreamGaveUp is the reason that refers to another proxy's reason (package
// policy).
const reasonUpstreamGaveUp = "upstream_gave_up"

// AppendResponseHeaders appends the headers: as lines between the status line, always HTTP/1.1 (RFC
// 9110 section 2.5), and the empty line, or as a block.
func AppendResponseHeaders(dst []byte, r *http1.Response, o *ResponseOptions) []byte {
	w := responseWriter{r: r, o: o}
	if o.Form == wire.Lines {
		dst = http1.AppendStatusLine(dst, r.Status, r.Phrase)
	}
	if r.HasHopByHopNames {
		dst = w.appendExceptConnectionListed(dst)
	} else {
		dst = w.appendHeaders(dst, nil)
	}
	if dst = w.appendMissing(dst); o.Form == wire.Block {
		return dst
	}
	return append(dst, "\r\n"...)
}

// AppendInformational appends an interim response (1xx except 101) with the headers for the
// client, and the empty line. Of the changes it gets what they hide, not what they set.
func AppendInformational(form wire.Form, dst []byte, r *http1.Response, changes HeaderChanges) []byte {
	return AppendResponseHeaders(dst, r, &ResponseOptions{Form: form, Minor: 1, Changes: changes.Hidden()})
}

// responseWriter writes the headers of one response, and records which of the proxy's own
// headers it has written.
type responseWriter struct {
	r *http1.Response
	o *ResponseOptions

	framed, attempts, reason, requestID bool
}

// appendExceptConnectionListed is appendHeaders if Connection lists headers.
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
			if (named == nil || f.ID != http1.OtherHeader || !isListed(named, f.Name)) && !w.o.Changes.hides(f.Name) {
				dst = wire.AppendLine(w.o.Form, dst, f)
			}
		case rewriteHeader:
			dst = w.appendRewritten(dst, f)
		}
	}
	return dst
}

// responseHandling is the handling of a response's headers.
var responseHandling = handlingByName(nil, []http1.HeaderName{
	http1.ContentLength, http1.TransferEncoding, http1.Trailer, http1.Via,
	http1.XRetryproxyAttempts, http1.XRetryproxyReason, http1.XRetryproxyOther,
	http1.XShouldRetry, http1.XRequestID,
})

func (w *responseWriter) appendRewritten(dst []byte, f *http1.Header) []byte {
	switch f.ID {
	case http1.ContentLength, http1.TransferEncoding:
		return w.appendFraming(dst)
	case http1.Trailer:
		if !w.o.Framing.HasTrailers() || announcesFraming(f.Value) {
			return dst
		}
	case http1.XRetryproxyAttempts, http1.XRetryproxyReason, http1.XRetryproxyOther, http1.XRequestID, http1.XShouldRetry:
		if w.hidesOwn(f.Name) {
			return dst
		}
	}
	switch f.ID {
	case http1.XRetryproxyAttempts:
		return w.appendAttempts(dst, f)
	case http1.XRetryproxyReason:
		return w.appendReason(dst, f)
	case http1.XRequestID:
		w.requestID = true
	case http1.XShouldRetry:
		if w.o.NoRetry {
			return dst
		}
	case http1.XRetryproxyOther:
		if w.o.Fallback != "" && bytes.EqualFold(f.Name, fallbackName) {
			return dst
		}
	}
	return wire.AppendLine(w.o.Form, dst, f)
}

// appendFraming writes the framing header, once. 1xx and 204 never have one (RFC 9110
// section 8.6, RFC 9112 section 6.1).
func (w *responseWriter) appendFraming(dst []byte) []byte {
	if w.framed {
		return dst
	}
	w.framed = true
	switch {
	case w.r.Status < 200 || w.r.Status == 204 || w.o.Upgrade:
		return dst
	case w.o.Framing.Kind == http1.BodyNone && w.r.Length >= 0:
		return wire.AppendInt(w.o.Form, dst, "Content-Length", w.r.Length)
	}
	return wire.AppendFraming(w.o.Form, dst, w.o.Framing)
}

// appendAttempts writes the higher number of attempts, once.
func (w *responseWriter) appendAttempts(dst []byte, f *http1.Header) []byte {
	if w.attempts {
		return dst
	}
	w.attempts = true
	if n, ok := http1.ParseUint(f.Value); w.o.Attempts > 0 && (!ok || n < int64(w.o.Attempts)) {
		return wire.AppendInt(w.o.Form, dst, f.Name, int64(w.o.Attempts))
	}
	return wire.AppendLine(w.o.Form, dst, f)
}

func (w *responseWriter) appendReason(dst []byte, f *http1.Header) []byte {
	if w.reason {
		return dst
	}
	w.reason = true
	if w.o.Reason != "" && w.o.Reason != reasonUpstreamGaveUp {
		return wire.AppendHeader(w.o.Form, dst, f.Name, w.o.Reason)
	}
	return wire.AppendLine(w.o.Form, dst, f)
}

// hidesOwn reports whether a header in which the proxy reports something is not sent.
func (w *responseWriter) hidesOwn(name []byte) bool {
	return !w.o.Reports && w.o.Changes.hides(name)
}

// appendMissing writes the proxy's headers that were not in the response.
func (w *responseWriter) appendMissing(dst []byte) []byte {
	if !w.framed {
		dst = w.appendFraming(dst)
	}
	if w.o.Date != nil && w.r.Get(http1.Date) == nil && !w.o.Changes.hides(dateName) {
		dst = wire.AppendHeader(w.o.Form, dst, dateName, w.o.Date)
	}
	switch {
	case w.o.Attempts <= 0 || w.attempts || w.hidesOwn(attemptsName):
	case w.o.Attempts == 1 && w.o.Form == wire.Lines: // the usual case
		dst = append(dst, "X-Retryproxy-Attempts: 1\r\n"...)
	default:
		dst = wire.AppendInt(w.o.Form, dst, "X-Retryproxy-Attempts", int64(w.o.Attempts))
	}
	if w.o.Reason != "" && !w.reason && !w.hidesOwn(reasonName) {
		dst = wire.AppendHeader(w.o.Form, dst, "X-Retryproxy-Reason", w.o.Reason)
	}
	if len(w.o.RequestID) > 0 && !w.requestID && !w.hidesOwn(requestIDName) {
		dst = wire.AppendHeader(w.o.Form, dst, "X-Request-Id", w.o.RequestID)
	}
	if w.o.NoRetry && !w.hidesOwn(shouldRetryName) {
		dst = wire.AppendHeader(w.o.Form, dst, "X-Should-Retry", "false")
	}
	if w.o.Fallback != "" && !w.hidesOwn(fallbackName) {
		dst = wire.AppendHeader(w.o.Form, dst, fallbackName, w.o.Fallback)
	}
	return w.appendConnection(append(dst, w.o.Changes.set(w.o.Form)...))
}

// appendConnection writes the headers about the connection to the client. A 426 keeps its
// Upgrade, since it tells the client what to upgrade to (RFC 9110 section 15.5.22).
func (w *responseWriter) appendConnection(dst []byte) []byte {
	o := w.o
	if o.Form == wire.Block {
		return dst // of the connection it says nothing (RFC 9113 section 8.2.2)
	}
	if o.Upgrade {
		dst = append(dst, "Connection: upgrade\r\n"...)
		return wire.AppendHeader(w.o.Form, dst, "Upgrade", w.r.Upgrade)
	}
	if w.r.Status == 426 {
		if to := w.r.Get(http1.Upgrade); len(to) > 0 {
			dst = append(dst, "Connection: upgrade\r\n"...)
			dst = wire.AppendHeader(w.o.Form, dst, "Upgrade", to)
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
