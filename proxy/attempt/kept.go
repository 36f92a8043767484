package attempt

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// Kept is a response that was read to its end and no longer needs its attempt. It owns its memory. It
// can be used again after Release.
type Kept struct {
	resp      http1.Response
	headers   []byte // the buffer that the spans of resp point into
	start     int32  // where the headers in it begin
	end       int32
	body      []byte
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
	k.headers, k.start, k.end = a.conn.moveResponse(&k.resp)
	k.cut, k.compacted = cut, false
	k.body, a.body.held = a.body.held, nil
	if k.resp.Body.HasTrailers() {
		k.chunked, a.body.chunked = a.body.chunked, k.chunked
	}
	k.composed = a.conn.up.Stream()
	k.atLength = a.options.Form == wire.Lines
}

// Response returns the headers of the response.
func (k *Kept) Response() *http1.Response { return &k.resp }

// Body returns the body of the response.
func (k *Kept) Body() []byte { return k.body }

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
	if k.compacted || k.headers == nil {
		return 0
	}
	before := cap(k.headers) + cap(k.body)
	headers, body := bytes.Clone(k.headers[k.start:k.end]), bytes.Clone(k.body)
	k.Release(check)
	k.resp.Reset()
	k.headers, k.body, k.compacted = headers, body, true
	return before - cap(headers) - cap(body)
}

// Restore parses the headers again after Compact.
func (k *Kept) Restore(limits http1.Limits, method []byte) {
	switch {
	case !k.compacted:
	case k.composed:
		if _, _ = k.resp.Compose(k.headers, limits, method); k.atLength {
			endAtLength(&k.resp)
		}
	default:
		_, _ = k.resp.Parse(k.headers, limits, method)
	}
}

// SpanChecker panics if something else still points into a buffer that goes back to its pool.
type SpanChecker interface{ CheckDetached(b []byte) }

// Release returns the memory of the response.
func (k *Kept) Release(check SpanChecker) {
	k.resp.Detach()
	check.CheckDetached(k.headers)
	check.CheckDetached(k.body)
	buffer.Put(k.headers)
	buffer.Put(k.body)
	k.headers, k.body = nil, nil
}

// CheckDetached panics if the response still points into b. It has an effect only in builds that
// poison.
func (k *Kept) CheckDetached(b []byte) {
	k.resp.Spans(func(span []byte) { MustNotPointInto(b, "the response held", span) })
}
