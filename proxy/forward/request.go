package forward

import (
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// AppendRequestHeaders appends a request line of HTTP/1.1 and what AppendRequestFields appends.
func AppendRequestHeaders(dst []byte, r *http1.Request, s *Settings, p *Peer, id []byte, key []byte) []byte {
	dst = append(append(dst, r.Method...), ' ')
	dst = append(AppendTarget(dst, r, s), " HTTP/1.1\r\n"...)
	return AppendRequestFields(wire.Lines, dst, r, s, p, id, key)
}

// AppendRequestFields appends the fields that are the same for all attempts. Call AppendAttempt to end
// the header section. What tells the length of the body is derived from r.Body. Valid headers with the
// client's deadline are left out: Deadline.Append writes them, before AppendAttempt. A block has no Host:
// see AppendAuthority.
//
// id is the request id to send, nil to forward X-Request-Id as received. key is an
// Idempotency-Key to add, nil for none; the client's own takes precedence.
func AppendRequestFields(form wire.Form, dst []byte, r *http1.Request, s *Settings, p *Peer, id []byte, key []byte) []byte {
	w := requestWriter{form: form, r: r, s: s, p: p, id: id}
	if r.Get(http1.Host) == nil {
		dst = w.appendHost(dst, hostName)
	}
	if r.HasHopByHopNames {
		dst = w.appendExceptConnectionListed(dst)
	} else {
		dst = w.appendHeaders(dst, nil)
	}
	dst = w.appendMissing(dst)
	if key != nil && r.Get(http1.IdempotencyKey) == nil {
		dst = wire.AppendHeader(form, dst, "Idempotency-Key", key)
	}
	return append(dst, s.Changes.set(form)...)
}

// AppendAttempt appends the headers that differ between attempts, and the empty line that
// ends the lines of a header section. n counts attempts from 1; expect adds "Expect: 100-continue".
func AppendAttempt(form wire.Form, dst []byte, n int, expect bool) []byte {
	if form == wire.Lines && n == 1 && !expect { // the usual case
		return append(dst, "X-Retryproxy-Attempt: 1\r\n\r\n"...)
	}
	dst = wire.AppendInt(form, dst, "X-Retryproxy-Attempt", int64(n))
	if expect {
		dst = wire.AppendHeader(form, dst, "Expect", "100-continue")
	}
	if form == wire.Block {
		return dst
	}
	return append(dst, "\r\n"...)
}

// AppendTarget appends the target in origin form, or "*" (RFC 9112 section 3.2).
func AppendTarget(dst []byte, r *http1.Request, s *Settings) []byte {
	path := r.Path
	if s.StripPrefix != "" {
		path = stripped(path, s.StripPrefix)
	}
	if s.BasePath != "" && path[0] == '/' {
		dst = append(dst, s.BasePath...)
		if len(path) == 1 && r.Path[len(r.Path)-1] != '/' {
			path = nil // the client asked for the prefix itself, without a slash
		}
	}
	dst = append(dst, path...)
	if r.HasQuery {
		dst = append(dst, '?')
		dst = append(dst, r.Query...)
	}
	return dst
}

// stripped removes whole segments from the start of the path, byte for byte.
func stripped(path []byte, prefix string) []byte {
	n := len(prefix)
	for n > 0 && prefix[n-1] == '/' {
		n--
	}
	switch {
	case len(path) < n || string(path[:n]) != prefix[:n]:
		return path
	case len(path) == n:
		return rootPath
	case path[n] != '/':
		return path
	}
	return path[n:]
}

var (
	rootPath = []byte("/")
	hostName = []byte("Host")
)

// requestWriter writes the headers of one request, and records which of the proxy's own
// headers it has written.
type requestWriter struct {
	form wire.Form
	r    *http1.Request
	s    *Settings
	p    *Peer
	id   []byte

	framed, forFor, forProto, forHost, requestID bool
}

// appendExceptConnectionListed is appendHeaders if Connection lists headers.
func (w *requestWriter) appendExceptConnectionListed(dst []byte) []byte {
	var buf [maxOptions][]byte
	return w.appendHeaders(dst, connectionOptions(buf[:0], w.r.Headers))
}

func (w *requestWriter) appendHeaders(dst []byte, named [][]byte) []byte {
	headers := w.r.Headers
	for i := range headers {
		f := &headers[i]
		switch requestHandling[f.ID] {
		case passThrough:
			if (named == nil || f.ID != http1.OtherHeader || !isListed(named, f.Name)) && !w.s.Changes.hides(f.Name) {
				dst = wire.AppendLine(w.form, dst, f)
			}
		case rewriteHeader:
			dst = w.appendRewritten(dst, f, headers[i+1:])
		}
	}
	return dst
}

// requestHandling is the handling of a request's headers.
var requestHandling = handlingByName(
	[]http1.HeaderName{
		http1.Expect, http1.FramingLookalike, http1.ForwardedLookalike, http1.XRetryproxyAttempt,
	},
	[]http1.HeaderName{
		http1.ContentLength, http1.TransferEncoding, http1.Trailer, http1.Host,
		http1.XForwardedFor, http1.XForwardedProto, http1.XForwardedHost, http1.XForwardedPort, http1.XRealIP, http1.Forwarded,
		http1.Via, http1.XRequestID, http1.MaxForwards, http1.GRPCPreviousRPCAttempts, http1.Traceparent, http1.Tracestate,
		http1.XRequestTimeout, http1.GRPCTimeout, http1.XEnvoyExpectedTimeout,
		http1.XRetryproxyAttempts, http1.XRetryproxyReason, http1.XRetryproxyOther,
	},
)

// appendRewritten writes a header that is handled individually; rest are the headers after
// it.
func (w *requestWriter) appendRewritten(dst []byte, f *http1.Header, rest []http1.Header) []byte {
	switch f.ID {
	case http1.ContentLength, http1.TransferEncoding:
		return w.appendFraming(dst)
	case http1.Trailer:
		if !w.r.Body.HasTrailers() || announcesFraming(f.Value) {
			return dst
		}
	case http1.Host:
		return w.appendHost(dst, f.Name)
	case http1.XForwardedFor, http1.XForwardedProto, http1.XForwardedHost,
		http1.XForwardedPort, http1.XRealIP, http1.Forwarded:
		return w.appendForwarding(dst, f, rest)
	case http1.XRequestID:
		return w.appendRequestID(dst, f)
	case http1.MaxForwards:
		if n, ok := MaxForwards(w.r); ok && n > 0 {
			return wire.AppendInt(w.form, dst, f.Name, int64(n-1))
		}
	case http1.GRPCPreviousRPCAttempts:
		if IsGRPC(w.r.Get(http1.ContentType)) {
			return dst // AppendGRPCAttempts writes it
		}
	case http1.Traceparent, http1.Tracestate:
		if w.s.OmitTrace {
			return dst // AppendClientTrace or the caller of this package writes them
		}
	case http1.XRequestTimeout, http1.GRPCTimeout, http1.XEnvoyExpectedTimeout:
		if rewritesDeadline(f) {
			return dst
		}
	case http1.XRetryproxyAttempts, http1.XRetryproxyReason, http1.XRetryproxyOther:
		if !w.p.mayControl() {
			return dst
		}
	}
	return wire.AppendLine(w.form, dst, f)
}

// appendFraming writes the framing header at the position of the first one.
func (w *requestWriter) appendFraming(dst []byte) []byte {
	if w.framed {
		return dst
	}
	w.framed = true
	return wire.AppendFraming(w.form, dst, w.r.Body)
}

// appendForwarding writes a header about the client.
func (w *requestWriter) appendForwarding(dst []byte, f *http1.Header, rest []http1.Header) []byte {
	if !w.p.IsBelieved() {
		return dst
	}
	switch f.ID {
	case http1.XForwardedFor:
		if w.forFor {
			return dst
		}
		w.forFor = true
		return w.appendList(dst, f, rest, w.p.node())
	case http1.XForwardedProto:
		w.forProto = true
	case http1.XForwardedHost:
		w.forHost = true
	}
	return wire.AppendLine(w.form, dst, f)
}

// appendRequestID writes the id at the position of the first X-Request-Id.
func (w *requestWriter) appendRequestID(dst []byte, f *http1.Header) []byte {
	switch {
	case w.id == nil:
		return wire.AppendLine(w.form, dst, f)
	case w.requestID:
		return dst
	}
	w.requestID = true
	return wire.AppendHeader(w.form, dst, f.Name, w.id)
}

// appendMissing writes the proxy's headers that were not in the request.
func (w *requestWriter) appendMissing(dst []byte) []byte {
	if !w.framed && w.r.Body.Kind != http1.BodyNone {
		dst = wire.AppendFraming(w.form, dst, w.r.Body)
	}
	dst = w.p.appendHeaders(w.form, dst, !w.forFor, !w.forProto)
	if !w.forHost && len(w.r.Authority) > 0 {
		dst = wire.AppendHeader(w.form, dst, "X-Forwarded-Host", w.r.Authority)
	}
	if w.id != nil && !w.requestID {
		dst = wire.AppendHeader(w.form, dst, "X-Request-Id", w.id)
	}
	return w.appendConnection(dst)
}

// appendConnection writes the headers about the connection to the upstream. HTTP/1.0 has no
// trailers, so it asks for none for such a client.
func (w *requestWriter) appendConnection(dst []byte) []byte {
	if !w.r.AcceptsTrailers && w.r.Upgrade == nil {
		return dst
	}
	te := w.r.AcceptsTrailers && w.r.Minor > 0
	if w.form == wire.Block { // of the connection it says nothing (RFC 9113 section 8.2.2)
		if te {
			dst = wire.AppendHeader(w.form, dst, "te", "trailers")
		}
		return dst
	}
	switch {
	case te && w.r.Upgrade != nil:
		dst = append(dst, "Connection: upgrade, TE\r\n"...)
	case te:
		dst = append(dst, "Connection: TE\r\n"...)
	case w.r.Upgrade != nil:
		dst = append(dst, "Connection: upgrade\r\n"...)
	}
	if te {
		dst = append(dst, "TE: trailers\r\n"...)
	}
	if w.r.Upgrade != nil {
		dst = wire.AppendHeader(w.form, dst, "Upgrade", w.r.Upgrade)
	}
	return dst
}

// MaxForwards returns how many more times an OPTIONS or TRACE may be forwarded (RFC 9110
// section 7.6.2); at 0 it must be answered here. It returns false, for no limit, for other
// methods, without the header, and if the header is repeated or no number. Numbers above
// 2^31-1 are read as 2^31-1.
func MaxForwards(r *http1.Request) (n int, ok bool) {
	if string(r.Method) != "OPTIONS" && string(r.Method) != "TRACE" {
		return 0, false
	}
	for i := range r.Headers {
		if r.Headers[i].ID != http1.MaxForwards {
			continue
		}
		v, isNumber := http1.ParseUint(r.Headers[i].Value)
		if ok || !isNumber {
			return 0, false
		}
		n, ok = int(min(v, 1<<31-1)), true
	}
	return n, ok
}
