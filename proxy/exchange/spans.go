package exchange

import (
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// Parsed heads point into the buffers that they were read into. Such a buffer goes back to its pool in this file
// alone, and only once nothing points into it any more: TestBuffersWithSpansGoBackInOneFile holds the first, builds
// with -race or -tags poison check the second.

// putSpanned puts b, into which no span points any more, back into its pool.
func (x *Exchange) putSpanned(b []byte) {
	x.CheckDetached(b)
	buffer.Put(b)
}

// DetachRequest forgets every span of the client's request.
func (x *Exchange) DetachRequest() {
	x.Conn.Request.Detach()
	x.ID = nil
	clear(x.upload.vec[:])
}

// putHead returns the buffer with the detached headers at the end of the request.
func (x *Exchange) putHead() {
	x.DetachRequest()
	if x.HeaderBuf != nil {
		used := x.HeaderBuf
		x.HeaderBuf = nil
		x.putSpanned(used)
	}
}

// releaseHeaders returns the buffers of the buffered response.
func (h *bufferedResponse) releaseHeaders() {
	h.resp.Detach()
	h.x.putSpanned(h.headerBuf)
	h.x.putSpanned(h.body)
	h.headerBuf, h.body = nil, nil
}

// CheckDetached panics in builds that poison if anything that the exchange knows of still points
// into b.
func (x *Exchange) CheckDetached(b []byte) {
	if !poison.On || cap(b) == 0 {
		return
	}
	attempt.MustNotPointInto(b, "the request's id", x.ID)
	attempt.MustNotPointInto(b, "the made key", x.GeneratedKey)
	attempt.MustNotPointInto(b, "the read buffer", x.Conn.In)
	attempt.MustNotPointInto(b, "the detached head", x.HeaderBuf)
	attempt.MustNotPointInto(b, "what is written", x.RequestHeaders)
	attempt.MustNotPointInto(b, "what is written", x.w.buf)
	x.Conn.Request.Spans(func(span []byte) { attempt.MustNotPointInto(b, "the request", span) })
	x.att.CheckDetached(b)
	x.buffered.resp.Spans(func(span []byte) { attempt.MustNotPointInto(b, "the response held", span) })
	if x.upload.Running {
		return // the vector and the body are the pump's
	}
	for _, part := range x.upload.vec {
		attempt.MustNotPointInto(b, "what was written last", part)
	}
	for _, piece := range x.Body.Kept {
		attempt.MustNotPointInto(b, "the body", piece)
	}
}
