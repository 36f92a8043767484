package attempt

import (
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// Kept is a response that was read to its end and no longer needs its attempt. It owns its memory. It
// can be used again after Release.
type Kept struct {
	resp      http1.Response
	headers   buffer.Spanned[keptSpans] // resp points into it
	start     int32                     // where the headers in it begin
	end       int32
	body      buffer.Spanned[keptSpans]
	chunked   http1.Chunked // has the trailers
	cut       bool
	compacted bool // moved into buffers of its size; resp is to be parsed again
	composed  bool // the headers are a record
	atLength  bool // its body ends with the last byte of its length, though the record says that its stream ends it
}

// Keep moves the response, whose body was read ahead to its end, into k, and returns the connection to
// the pool. now is called for the time when that can be done. If cut is set, the upstream ended the
// response early.
func (a *Attempt) Keep(k *Kept, cut bool, now func() clock.Instant) {
	inOrder, idle := a.respondedInOrder() && !cut, a.conn.resp.KeepAliveTimeout
	k.take(a, cut)
	a.SetAside()
	a.release(now(), inOrder, idle)
}

// take takes the response of a. It is a function of its own because copying takes stack, which what
// follows must not add to: each request in backoff keeps the stack of its deepest call.
func (k *Kept) take(a *Attempt, cut bool) {
	var headers buffer.Handle
	headers, k.start, k.end = a.conn.moveResponse(&k.resp)
	k.headers.Hold(&headers)
	k.cut, k.compacted = cut, false
	k.body.Hold(&a.body.held)
	if k.resp.Body.HasTrailers() {
		k.chunked, a.body.chunked = a.body.chunked, k.chunked
	}
	k.composed = a.conn.up.Stream()
	k.atLength = a.options.Form == wire.Lines
}

// Response returns the headers of the response.
func (k *Kept) Response() *http1.Response { return &k.resp }

// Body returns the body of the response.
func (k *Kept) Body() []byte { return k.body.Bytes() }

// text returns the headers as they came.
func (k *Kept) text() []byte { return k.headers.Bytes()[k.start:k.end] }

// Cut reports whether the upstream ended the body early.
func (k *Kept) Cut() bool { return k.cut }

// Trailers returns the trailers of the response.
func (k *Kept) Trailers() []http1.Header {
	if !k.resp.Body.HasTrailers() {
		return nil
	}
	return k.chunked.Trailers()
}

// Compact moves the response out of the buffers that it was read into. It returns how many bytes of
// memory that freed. Response must not be used before Restore.
func (k *Kept) Compact(check SpanChecker) (saved int) {
	if k.compacted || !k.headers.Owns() {
		return 0
	}
	before := k.memory()
	headers, body := buffer.Clone(k.text()), buffer.Clone(k.body.Bytes())
	k.Release(check)
	k.resp.Reset()
	k.start, k.end = 0, int32(headers.Len())
	k.headers.Hold(&headers)
	k.body.Hold(&body)
	k.compacted = true
	return before - k.memory()
}

// Restore parses the headers again after Compact.
func (k *Kept) Restore(limits http1.Limits, method []byte) {
	switch {
	case !k.compacted:
	case k.composed:
		if _, _ = k.resp.Compose(k.text(), limits, method); k.atLength {
			endAtLength(&k.resp)
		}
	default:
		_, _ = k.resp.Parse(k.text(), limits, method)
	}
}

// SpanChecker panics if something else still points into a buffer that goes back to its pool.
type SpanChecker interface{ CheckDetached(b []byte) }

// keptSpans are what may point into the buffers of a response.
type keptSpans struct {
	*Kept
	others SpanChecker
}

// CheckDetached implements buffer.Spans.
func (s keptSpans) CheckDetached(b []byte) {
	s.Kept.CheckDetached(b)
	s.others.CheckDetached(b)
}

// Release returns the memory of the response.
func (k *Kept) Release(check SpanChecker) {
	spans := keptSpans{k, check}
	k.headers.Put(nil, spans)
	k.body.Put(nil, spans)
}

// Detach clears all that points into the buffers.
func (k *Kept) Detach() { k.resp.Detach() }

// CheckDetached panics if the response still points into b.
func (k *Kept) CheckDetached(b []byte) {
	k.resp.Spans(func(span []byte) { buffer.MustNotPointInto(b, "the response held", span) })
}

// memory returns the size of the buffers.
func (k *Kept) memory() int { return k.headers.Cap() + k.body.Cap() }
