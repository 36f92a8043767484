// Package response writes the response of a request to its client: the upstream's, piece by piece,
// or our own if there is none.
package response

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/retryafter"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// frame is the room, in bytes, for the size line and the end of a chunk.
const frame = 20

// Writer writes the response of a request to the client.
type Writer struct {
	r   *request.Request
	buf buffer.Handle // to be written next

	retryAfter int32    // of our own response, in seconds; of an upstream's see Asks; 0: none
	fallback   Fallback // what responded in the upstream's place
	sent       int64    // bytes of response bodies written to the client
	started    bool     // bytes of the final response went to the client
	mustClose  bool     // the client's connection cannot serve another request
	mustReset  bool     // the client's connection must end with a reset
	upgraded   bool     // the connection became a tunnel
	exposed    bool     // whatever responds: the request may have been processed, and must not be sent twice

	// Of a response to a stream.
	headersWait bool // they were written and go out with what follows
	ended       bool // it was written whole
	failed      bool // its headers could not be written
}

// Fallback is what responded in the upstream's place.
type Fallback uint8

// Fallbacks.
const (
	NoFallback Fallback = iota
	FallbackResponse
	FallbackUpstream
)

// String returns the value of X-Retryproxy-Fallback, "" for none.
func (k Fallback) String() string {
	return [...]string{NoFallback: "", FallbackResponse: "answer", FallbackUpstream: "upstream"}[k]
}

// Init prepares the writer of a connection for its first use.
func (w *Writer) Init(r *request.Request) { w.r = r }

// Begin prepares for another request. closes means that its client wants the connection closed.
func (w *Writer) Begin(closes bool) {
	w.fallback, w.retryAfter, w.sent = NoFallback, 0, 0
	w.headersWait, w.ended, w.failed = false, false, false
	w.started, w.mustClose, w.mustReset, w.upgraded, w.exposed = false, closes, false, false, false
}

// Close makes the client's connection end after the response.
func (w *Writer) Close() { w.mustClose = true }

// Reset makes the client's connection end with a reset, so that the response does not look whole.
func (w *Writer) Reset() { w.mustReset = true }

// Resets reports whether the client's connection must end with a reset.
func (w *Writer) Resets() bool { return w.mustReset }

// Upgraded reports whether the client's connection became a tunnel.
func (w *Writer) Upgraded() bool { return w.upgraded }

// KeepsConnection reports whether the client's connection can serve another request.
func (w *Writer) KeepsConnection() bool { return !w.mustClose && !w.mustReset }

// InPlaceOfUpstream says what responds in the upstream's place.
func (w *Writer) InPlaceOfUpstream(by Fallback) { w.fallback = by }

// ForbidRetry tells the client not to send the request again, whatever the response is: it may have been
// processed, and must not be sent twice.
func (w *Writer) ForbidRetry() { w.exposed = true }

// BodySent returns how many bytes of response bodies were written to the client.
func (w *Writer) BodySent() int64 { return w.sent }

// Spliced counts n bytes of the body that went to the client without the writer.
func (w *Writer) Spliced(n int64) { w.sent += n }

// HasRetryAfter reports whether our own response asks for a wait.
func (w *Writer) HasRetryAfter() bool { return w.retryAfter != 0 }

// Framing returns the framing towards the client of a body with the upstream's framing f. Over HTTP/1.1 a
// body with a length has no trailers, so the length goes if there may be some.
func (w *Writer) Framing(f http1.Framing) http1.Framing {
	switch {
	case f.Kind == http1.BodyNone || f.Kind == http1.BodyLength:
		return f
	case w.isStream() && f.Kind == http1.BodyStream:
		return f
	case w.isStream():
		return http1.Framing{Kind: http1.BodyStream, Length: -1}
	case w.r.HTTP.Minor == 0:
		w.mustClose = true
		return http1.Framing{Kind: http1.BodyClose}
	}
	return http1.Framing{Kind: http1.BodyChunked}
}

// NotGRPC reports whether a gRPC client does not understand resp, because something in front of
// the service sent it.
func (w *Writer) NotGRPC(resp *http1.Response) bool {
	return w.r.GRPC && !forward.IsGRPC(resp.Get(http1.ContentType))
}

// appendHeaders appends the headers of an upstream's response with the framing f.
func (w *Writer) appendHeaders(dst []byte, resp *http1.Response, f http1.Framing, received clock.Instant, reason string) []byte {
	o := forward.ResponseOptions{
		Form:    w.r.Conn.Form(),
		Framing: f,
		Minor:   w.r.HTTP.Minor,
		Close:   w.mustClose,
		Changes: w.r.Route.ResponseChanges,
	}
	if resp.Get(http1.Date) == nil {
		o.Date = w.r.Process.Clock.Date(received)
	}
	w.ownHeaders(&o, resp, reason)
	return forward.AppendResponseHeaders(dst, resp, &o)
}

// WritePiece appends a piece to w.buf and writes w.buf when it is full.
func (w *Writer) WritePiece(f http1.Framing, piece []byte) error {
	w.sent += int64(len(piece))
	if need := len(piece) + frame; need > w.buf.Room() && w.buf.Len()+need <= buffer.Medium {
		w.buf.Grow(need)
	}
	if f.Kind == http1.BodyChunked {
		return w.writeChunks(piece)
	}
	if len(piece) > w.buf.Room() {
		err := w.flushWith(piece, f.Kind == http1.BodyLength && w.sent == f.Length)
		w.r.Time.Tick() // the write may have waited for the client
		return err
	}
	w.buf.Append(piece)
	return nil
}

// writeChunks does what WritePiece does for a chunked body, in as many chunks as necessary.
func (w *Writer) writeChunks(piece []byte) error {
	for len(piece) > 0 {
		if w.buf.Room() <= frame {
			if err := w.Flush(); err != nil {
				return err
			}
			w.r.Time.Tick() // the write may have waited for the client
		}
		n := min(len(piece), w.buf.Room()-frame)
		w.buf.Appended(http1.AppendChunk(w.buf.Bytes(), piece[:n]))
		piece = piece[n:]
	}
	return nil
}

// EndBody sends the buffered rest and the end of the framing.
func (w *Writer) EndBody(f http1.Framing, trailers []http1.Header) error {
	return w.endBody(f, w.r.Route.ResponseChanges.Trailers(trailers))
}

func (w *Writer) endBody(f http1.Framing, trailers []http1.Header) error {
	if w.isStream() {
		return w.endStream(trailers)
	}
	if f.Kind == http1.BodyChunked {
		w.buf.Appended(http1.AppendLastChunk(w.buf.Bytes(), trailers))
	}
	return w.Flush()
}

// Flush writes w.buf to the client.
func (w *Writer) Flush() error {
	if w.buf.Len() == 0 && !w.headersWait {
		return nil
	}
	return w.flushWith(nil, false)
}

// flushWith writes w.buf and then p, without copying p. If p is the last of a body, the end of its stream goes with
// it.
func (w *Writer) flushWith(p []byte, last bool) (err error) {
	if w.isStream() {
		err = w.writeStream(p, last)
	} else {
		err = w.r.Conn.WriteBoth(w.buf.Bytes(), p, w.r.Time.Clock)
	}
	w.buf.Resize(0)
	return clientGone(err)
}

func clientGone(err error) error {
	if err != nil {
		return attempt.ErrClientGone
	}
	return nil
}

// clean returns the empty scratch buffer for what is written to the client.
func (w *Writer) clean() []byte {
	if !w.buf.Owns() {
		w.buf = w.r.Conn.Buffers.Get(buffer.Small)
	}
	return w.buf.Bytes()[:0]
}

// ownHeaders adds the proxy's own headers to the response. The configuration can hide them from
// clients that are not themselves a retryproxy.
func (w *Writer) ownHeaders(o *forward.ResponseOptions, resp *http1.Response, reason string) {
	if !w.r.Route.DryRun {
		o.Reports = w.r.ClientIsProxy()
		o.Attempts, o.Reason, o.Fallback, o.RequestID = w.r.Attempts(), reason, w.fallback.String(), w.r.Out.ID
		o.NoRetry = reason != "" && w.noRetry(resp, reason) || reason == "" && w.mayBeRepeated(resp)
	}
}

// mayBeRepeated reports whether the client might repeat a request that must not be sent twice, if
// the body of this good response is cut off. The vendors' clients do so unless the headers forbid
// it (anthropic-sdk-go, requestconfig.go, shouldRetryDroppedBody).
func (w *Writer) mayBeRepeated(resp *http1.Response) bool {
	return w.r.Has(http1.XStainlessRetryCount) && !w.r.IsSafe() && resp.Status < 400 && resp.Get(http1.XShouldRetry) == nil
}

// Asks records the wait that our own response asks for, or the one that the upstream's asks for in any way
// that we know. The latter is not written.
func (w *Writer) Asks(wait time.Duration) { w.retryAfter = int32(min(wait/time.Second, math.MaxInt32)) }

// noRetry reports whether the response asks the client not to retry, because of reason. A request that
// may have been processed must not be sent twice by anybody, unless the upstream itself asks for it.
// Otherwise only a retry that cannot succeed is forbidden. With a fallback upstream any retry can: what
// is used up or not trusted is not all that there is.
func (w *Writer) noRetry(resp *http1.Response, reason string) bool {
	switch {
	case w.exposed:
		return true
	case reason == notIdempotent:
		return resp.Get(http1.XShouldRetry) == nil
	case reason == retryAfterTooLong:
		return len(w.r.Route.FallbackRoutes) == 0 && w.comesTooEarly(resp)
	}
	return inVain[reason] && len(w.r.Route.FallbackRoutes) == 0
}

// longestClientWait is the longest wait that the vendors' clients accept from a response, and slack the
// unit of Retry-After. Asked for more, they retry after 8 s at most (openai-go and anthropic-sdk-go,
// requestconfig.go, retryDelay).
const (
	longestClientWait = time.Minute
	slack             = time.Second
)

// comesTooEarly reports whether a client's retry comes before the end of the wait that the response
// asks for: the wait is not in a header that clients read, or is too long for them.
func (w *Writer) comesTooEarly(resp *http1.Response) bool {
	wait, ok := retryafter.Parse(resp.Get(http1.RetryAfter), resp.Get(http1.Date), time.Now())
	if ms, is := resp.Lookup("retry-after-ms"); is {
		if n, isNumber := http1.ParseUint(ms); isNumber {
			wait, ok = time.Duration(min(n, longestClientWait.Milliseconds()+1))*time.Millisecond, true // it takes precedence
		}
	}
	return !ok || wait > longestClientWait || wait+slack < time.Duration(w.retryAfter)*time.Second
}

var (
	notIdempotent     = policy.ReasonNotIdempotent.String()
	retryAfterTooLong = policy.ReasonRetryAfterTooLong.String()
)

// inVain has the labels of the reasons for which any retry is in vain.
var inVain = func() map[string]bool {
	all := map[string]bool{}
	for _, r := range policy.AllReasons() {
		all[r.String()] = r.InVain()
	}
	return all
}()

// TakeHeadersBuffer reuses the buffer of the request headers for the response, if it has none. No
// other attempt may follow.
func (w *Writer) TakeHeadersBuffer() {
	if !w.buf.Owns() {
		w.buf = w.r.Out.Take()
	}
}

// Inform forwards an informational response.
func (w *Writer) Inform(resp *http1.Response) error {
	w.buf.Appended(forward.AppendInformational(w.r.Conn.Form(), w.clean(), resp, w.r.Route.ResponseChanges))
	return w.r.Conn.Inform(resp.Status, w.buf.Bytes(), w.r.Time.Now())
}

// Headers begins an upstream's response with the framing f.
func (w *Writer) Headers(resp *http1.Response, f http1.Framing, received clock.Instant, reason string) {
	w.buf.Appended(w.appendHeaders(w.clean(), resp, f, received, reason))
	w.started = true
	if w.isStream() {
		w.beginStream(resp.Status, f.Empty())
	}
}

// Upgrade sends the response to an accepted upgrade, then rest, the bytes that followed it.
func (w *Writer) Upgrade(resp *http1.Response, rest []byte) error {
	w.mustClose, w.started, w.upgraded = true, true, true
	o := forward.ResponseOptions{Form: w.r.Conn.Form(), Minor: 1, Upgrade: true, Attempts: w.r.Attempts(), Changes: w.r.Route.ResponseChanges.Hidden()}
	if w.isStream() {
		o.Changes = withoutAccept.Hiding(o.Changes)
	}
	w.buf.Appended(forward.AppendResponseHeaders(w.clean(), resp, &o))
	if w.isStream() {
		w.beginStream(resp.Status, false)
	}
	w.buf.Append(rest)
	return w.Flush()
}

// Release returns the writer's memory.
func (w *Writer) Release() { w.r.Conn.Buffers.Put(&w.buf) }

// CheckDetached panics if the bytes to be written next lie in b.
func (w *Writer) CheckDetached(b []byte) {
	buffer.MustNotPointInto(b, "what is written", w.buf.Bytes())
}
