package exchange

import (
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// readTail is the room, in bytes, for what a client sends while its request waits.
const readTail = 64

// Compact shrinks the exchange for a wait that thousands of requests may share. It moves what is
// kept out of the buffers that it was read into. The headers are parsed again later, which is
// cheaper than keeping every buffer. Parsers are reset: a slice of headers keeps earlier spans behind
// its end, and with them whole buffers.
func (x *Exchange) Compact() {
	x.r.Out.Drop()
	x.r.Conn.Buffers.Release()
	x.buffered.compact()
	x.sender.att.Compact()
	x.compactRequest()
	x.r.Process.OnWait()
}

// compactRequest compacts the client's read buffer.
func (x *Exchange) compactRequest() {
	c, kind := x.r.Conn, x.r.Body.Framing().Kind
	switch {
	case x.sender.att.UsesClient(): // another goroutine may read it
	case x.r.HeaderBuffer() != nil && kind == http1.BodyChunked && x.r.Body.Ended() && c.Buffered() == 0: // a chunked body was read through it; of one with a length the begin is kept there
		c.ShrinkEmpty(readTail)
	case x.r.HeaderBuffer() == nil && kind == http1.BodyNone && c.CanShrink(readTail):
		x.r.Out.OwnID()
		c.Shrink(readTail, x.r.Settings.Limits)
	}
}

// Parsed headers point into the buffers that they were read into. Such a buffer goes back to its
// pool only by a few methods, and only when nothing points into it any more.
// TestOnlyAFewMethodsReturnBuffersWithSpans checks the first rule; builds with -race or -tags poison
// check the second.

// DetachRequest clears every span of the client's request.
func (x *Exchange) DetachRequest() {
	x.r.HTTP.Detach()
	x.r.Out.Detach()
}

// putHead returns the buffer of the detached request headers to its pool when the request ends.
func (x *Exchange) putHead() {
	x.DetachRequest()
	if used := x.r.TakeHeaderBuffer(); used != nil {
		x.CheckDetached(used)
		buffer.Put(used)
	}
}

// CheckDetached panics if a part of the exchange still points into b. It has an effect only in
// builds that poison.
func (x *Exchange) CheckDetached(b []byte) {
	if !poison.On || cap(b) == 0 {
		return
	}
	attempt.MustNotPointInto(b, "the request's id", x.r.Out.ID)
	attempt.MustNotPointInto(b, "the made key", x.r.Out.GeneratedKey)
	attempt.MustNotPointInto(b, "the read buffer", x.r.Conn.Memory())
	attempt.MustNotPointInto(b, "the detached head", x.r.HeaderBuffer())
	attempt.MustNotPointInto(b, "what is written", x.r.Out.Headers)
	x.w.CheckDetached(b)
	x.r.HTTP.Spans(func(span []byte) { attempt.MustNotPointInto(b, "the request", span) })
	x.sender.att.CheckDetached(b)
	x.buffered.kept.CheckDetached(b)
	if x.sender.att.UsesClient() {
		return // the pump owns the vector and the body
	}
	for _, piece := range x.r.Body.Kept() {
		attempt.MustNotPointInto(b, "the body", piece)
	}
}
