package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// frame is the room for the size line and the end of a chunk.
const frame = 20

// responseWriter writes the response of a request to the client.
type responseWriter struct {
	r   *request.Request
	buf []byte // what is written next

	retryAfter int          // of a response of our own, in seconds; 0: none
	fallback   fallbackKind // what answered in the upstream's place
	started    bool         // bytes of the final response went to the client
	mustClose  bool         // the client's connection cannot serve another request
	mustReset  bool         // the client's connection must end, in a way that looks broken
}

// reset prepares for another request, whose client wants its connection closed or not.
func (w *responseWriter) reset(closes bool) {
	w.fallback, w.retryAfter = noFallback, 0
	w.started, w.mustClose, w.mustReset = false, closes, false
}

// clientFraming returns the framing towards the client for a body with the upstream's framing f.
func (w *responseWriter) framing(f http1.Framing) http1.Framing {
	switch {
	case f.Kind == http1.BodyNone || f.Kind == http1.BodyLength:
		return f
	case w.r.HTTP.Minor == 0:
		w.mustClose = true
		return http1.Framing{Kind: http1.BodyClose}
	}
	return http1.Framing{Kind: http1.BodyChunked}
}

// appendHeaders appends the headers of an upstream's response with the framing f.
func (w *responseWriter) appendHeaders(dst []byte, resp *http1.Response, f http1.Framing, reason string) []byte {
	o := forward.ResponseOptions{
		Framing: f,
		Minor:   w.r.HTTP.Minor,
		Close:   w.mustClose,
		Via:     w.r.Dest.Forward.Via,
		Changes: w.r.Route.ResponseChanges,
	}
	w.ownHeaders(&o, resp, reason)
	return forward.AppendResponseHeaders(dst, resp, &o)
}

// writePiece appends a piece to x.out and writes x.out when it is full.
func (w *responseWriter) writePiece(f http1.Framing, piece []byte) error {
	w.r.BodyBytesSent += int64(len(piece))
	if len(w.buf)+len(piece)+frame > cap(w.buf) && len(w.buf)+len(piece)+frame <= buffer.Medium {
		w.buf = buffer.Grow(w.buf, len(piece)+frame)
	}
	if f.Kind == http1.BodyChunked {
		return w.writeChunks(piece)
	}
	if len(piece) > cap(w.buf)-len(w.buf) {
		err := w.flushWith(piece)
		w.r.Tick() // it may have waited for the client
		return err
	}
	w.buf = append(w.buf, piece...)
	return nil
}

// writeChunks is writePiece for a chunked body, in as many chunks as necessary.
func (w *responseWriter) writeChunks(piece []byte) error {
	for len(piece) > 0 {
		if cap(w.buf)-len(w.buf) <= frame {
			if err := w.flush(); err != nil {
				return err
			}
			w.r.Tick() // it may have waited for the client
		}
		n := min(len(piece), cap(w.buf)-len(w.buf)-frame)
		w.buf = http1.AppendChunk(w.buf, piece[:n])
		piece = piece[n:]
	}
	return nil
}

// endBody sends the rest and the end of the framing.
func (w *responseWriter) endBody(f http1.Framing, trailers []http1.Header) error {
	if f.Kind == http1.BodyChunked {
		w.buf = http1.AppendLastChunk(w.buf, w.r.Route.ResponseChanges.Trailers(trailers))
	}
	return w.flush()
}

// flush writes x.out to the client.
func (w *responseWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	return w.flushWith(nil)
}

// flushWith writes x.out and then p, without copying p.
func (w *responseWriter) flushWith(p []byte) error {
	err := w.r.Conn.WriteBoth(w.buf, p, w.r.Clock)
	w.buf = w.buf[:0]
	if err != nil {
		return attempt.ErrClientGone
	}
	return nil
}

// cleanOut returns the empty scratch buffer for what is written to the client.
func (w *responseWriter) clean() []byte {
	if w.buf == nil {
		w.buf = w.r.Conn.Buffers.Get(buffer.Small)
	}
	return w.buf[:0]
}

// ownHeaders adds to the headers what clients are told of us. The configuration can hide it from
// clients that are not themselves a retryproxy.
func (w *responseWriter) ownHeaders(o *forward.ResponseOptions, resp *http1.Response, reason string) {
	if !w.r.Route.DryRun {
		o.Reports = w.r.ClientIsProxy()
		o.Attempts, o.Reason, o.Fallback, o.RequestID = w.r.Attempts, reason, w.fallback.String(), w.r.ID
		o.NoRetry = reason != "" && noRetry(resp, reason) || reason == "" && w.mayBeRepeated(resp)
	}
}

// mayBeRepeated reports whether the client might repeat a request, if the body of this good response
// is cut off, though the request must not be sent twice. The vendors' clients do so
// (anthropic-sdk-go, requestconfig.go, shouldRetryDroppedBody), unless the headers asked them not to.
func (w *responseWriter) mayBeRepeated(resp *http1.Response) bool {
	return w.r.HeaderNames.Has(http1.XStainlessRetryCount) && !w.r.Safe && resp.Status < 400 && resp.Get(http1.XShouldRetry) == nil
}

// noRetry reports whether the client is told not to retry either. A request that may have been
// processed is not to be sent twice by anybody, unless the upstream itself asks for it.
func noRetry(resp *http1.Response, reason string) bool {
	return policy.InVain(reason) || reason == notIdempotent && resp.Get(http1.XShouldRetry) == nil
}

var notIdempotent = policy.ReasonNotIdempotent.String()
