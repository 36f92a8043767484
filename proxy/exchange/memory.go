package exchange

import (
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
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
	case x.r.HasDetachedHeaders() && kind == http1.BodyChunked && x.r.Body.Ended() && c.Buffered() == 0: // a chunked body was read through it; of one with a length the begin is kept there
		c.ShrinkEmpty(readTail)
	case !x.r.HasDetachedHeaders() && kind == http1.BodyNone && c.CanShrink(readTail):
		x.r.Out.OwnID()
		c.Shrink(readTail, x.r.Settings.Limits)
	}
}

// Detach clears every span of the client's request.
func (x *Exchange) Detach() {
	x.r.HTTP.Detach()
	x.r.Out.Detach()
}

// CheckDetached panics if a part of the exchange still points into b.
func (x *Exchange) CheckDetached(b []byte) {
	buffer.MustNotPointInto(b, "the request's id", x.r.Out.ID)
	buffer.MustNotPointInto(b, "the made key", x.r.Out.GeneratedKey)
	buffer.MustNotPointInto(b, "the read buffer", x.r.Conn.Memory())
	buffer.MustNotPointInto(b, "what is written", x.r.Out.Headers())
	x.w.CheckDetached(b)
	x.r.CheckDetached(b)
	x.sender.att.CheckDetached(b)
	x.buffered.kept.CheckDetached(b)
	if x.sender.att.UsesClient() {
		return // the pump owns the vector and the body
	}
	for _, piece := range x.r.Body.Kept() {
		buffer.MustNotPointInto(b, "the body", piece)
	}
}
