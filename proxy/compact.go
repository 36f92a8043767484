package proxy

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

const (
	// compactAbove is how many requests may wait at once before their memory is worth
	// the copying.
	compactAbove = 64
	// readTail is room for what a client sends while its request waits.
	readTail = 64
)

// compact makes the exchange small for a wait, in which thousands may stand: what
// is kept over it moves out of the buffers that it was read into. Heads are read
// again where they are then, which gives the same and is cheaper than to keep
// every buffer.
func (x *exchange) compact() {
	putBuffer(x.requestHeaders)
	x.requestHeaders = nil
	x.spareBuffers.release()
	if !x.pumping { // which writes by them
		clear(x.vec[:]) // what was written still points into buffers
	}
	x.buffered.compact()
	x.compactRequest()
	x.c.server.tidying.note()
}

// compactRequest does that for the client's read buffer.
func (x *exchange) compactRequest() {
	c := x.c
	switch {
	case x.pumping || x.hedge.attempt != nil: // another goroutine may read it
	case x.headerBuf != nil && x.body.ended && c.r == c.w: // a chunked body was read through it
		c.replaceIn(make([]byte, readTail))
		c.r, c.w = 0, 0
	case x.headerBuf == nil && x.body.framing.Kind == http1.BodyNone && 2*(c.w+readTail) <= cap(c.in):
		exact := make([]byte, c.w+readTail)
		copy(exact, c.in[:c.w])
		x.ownID()
		_, _ = c.req.Parse(exact[:c.r], x.set.Limits)
		c.replaceIn(exact)
	}
}

// ownID copies the request's id, which may lie in the client's buffer.
func (x *exchange) ownID() { x.id = append(x.idText[:0], x.id...) }

// renderHead makes the request headers for the upstream, once for all attempts, and again
// where it was not kept over a wait.
func (x *exchange) renderHead() {
	if x.requestHeaders == nil {
		x.requestHeaders = x.spareBuffers.get(smallBuffer)[:0]
		x.requestHeaders = forward.AppendRequestHeaders(x.requestHeaders, x.req, &x.route.Forward, &x.c.peer, x.id, x.generatedKey)
	}
}

// compact does that for the response held. Its head is read again when it is wanted.
func (h *bufferedResponse) compact() {
	if !h.full || h.compacted {
		return
	}
	h.compacted = true
	before := cap(h.headerBuf) + cap(h.body)
	headers := bytes.Clone(h.headerBuf[h.headerStart:h.headerEnd])
	body := bytes.Clone(h.body)
	h.releaseHeaders()
	h.headerBuf, h.body = headers, body
	saved := before - cap(headers) - cap(body)
	h.x.c.server.replay.give(saved)
	h.charged -= saved
}

// restoreHeaders undoes what slim did to the head.
func (h *bufferedResponse) restoreHeaders() {
	if h.compacted {
		_, _ = h.resp.Parse(h.headerBuf, h.x.set.Limits, h.x.req.Method)
	}
}
