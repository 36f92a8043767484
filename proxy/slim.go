package proxy

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

const (
	// slimAbove is how many requests may wait at once before their memory is worth
	// the copying.
	slimAbove = 64
	// readTail is room for what a client sends while its request waits.
	readTail = 64
)

// slim makes the exchange small for a wait, in which thousands may stand: what
// is kept over it moves out of the buffers that it was read into. Heads are read
// again where they are then, which gives the same and is cheaper than to keep
// every buffer.
func (x *exchange) slim() {
	putBuffer(x.head)
	x.head = nil
	x.spare.release()
	if !x.pumping { // which writes by them
		clear(x.vec[:]) // what was written still points into buffers
	}
	x.held.slim()
	x.slimRequest()
	x.c.server.tidying.note()
}

// slimRequest does that for the client's read buffer.
func (x *exchange) slimRequest() {
	c := x.c
	switch {
	case x.pumping || x.hedge.rival != nil: // another goroutine may read it
	case x.headBuf != nil && x.body.ended && c.r == c.w: // a chunked body was read through it
		c.replaceIn(make([]byte, readTail))
		c.r, c.w = 0, 0
	case x.headBuf == nil && x.body.framing.Kind == http1.BodyNone && 2*(c.w+readTail) <= cap(c.in):
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
	if x.head == nil {
		x.head = x.spare.get(smallBuffer)[:0]
		x.head = forward.AppendRequestHeaders(x.head, x.req, &x.route.Forward, &x.c.peer, x.id, x.madeKey)
	}
}

// slim does that for the response held. Its head is read again when it is wanted.
func (h *held) slim() {
	if !h.full || h.slimmed {
		return
	}
	h.slimmed = true
	before := cap(h.head) + cap(h.body)
	head := bytes.Clone(h.head[h.headAt:h.headEnd])
	body := bytes.Clone(h.body)
	h.putHead()
	h.head, h.body = head, body
	saved := before - cap(head) - cap(body)
	h.x.c.server.replay.give(saved)
	h.charged -= saved
}

// fatten undoes what slim did to the head.
func (h *held) fatten() {
	if h.slimmed {
		_, _ = h.resp.Parse(h.head, h.x.set.Limits, h.x.req.Method)
	}
}
