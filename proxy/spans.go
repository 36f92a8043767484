package proxy

import (
	"unsafe"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Parsed heads point into the buffers that they were read into. Such a buffer goes back to its pool in this file
// alone, and only once nothing points into it any more: TestBuffersWithSpansGoBackInOneFile holds the first, builds
// with -race or -tags poison check the second.

// putSpanned puts b, into which no span points any more, back into its pool.
func (x *exchange) putSpanned(b []byte) {
	x.checkDetached(b)
	putBuffer(b)
}

// detachRequest forgets every span of the client's request.
func (x *exchange) detachRequest() {
	x.c.req.Detach()
	x.id = nil
	clear(x.vec[:])
}

// putHead gives the buffer with the detached head back, at the request's end.
func (x *exchange) putHead() {
	x.detachRequest()
	if x.headerBuf != nil {
		used := x.headerBuf
		x.headerBuf = nil
		x.putSpanned(used)
	}
}

// putIn gives the read buffer back, between requests.
func (c *conn) putIn() {
	c.x.detachRequest()
	used := c.in
	c.in, c.r, c.w = nil, 0, 0
	c.x.putSpanned(used)
}

// replaceIn makes b the read buffer in place of the one in use, into which nothing points any more.
func (c *conn) replaceIn(b []byte) {
	used := c.in
	c.in = b
	c.x.putSpanned(used)
}

// growIn doubles the read buffer while a head is read, which is then parsed anew.
func (c *conn) growIn() {
	c.x.detachRequest()
	b := grow(c.in[:c.w], c.w)
	c.in = b[:cap(b)]
}

// giveUpBuffer takes the upstream connection's read buffer back from it.
func (x *exchange) giveUpBuffer() {
	x.resp.Detach()
	x.checkDetached(x.up.Buf)
	x.spareBuffers.put(x.up.Buf)
	x.up.Buf = nil
}

// growUp doubles the upstream connection's read buffer while a head is read, which is then parsed anew.
func (x *exchange) growUp() {
	x.resp.Detach()
	b := grow(x.up.Buf[:x.upW], len(x.up.Buf))
	x.up.Buf = b[:cap(b)]
}

// replaceUp makes b the upstream connection's read buffer, once the response's headers was written to the client.
func (x *exchange) replaceUp(b []byte) {
	x.resp.Detach()
	used := x.up.Buf
	x.up.Buf = b
	x.putSpanned(used)
}

// releaseHeaders gives the buffers of the response held back.
func (h *bufferedResponse) releaseHeaders() {
	h.resp.Detach()
	h.x.putSpanned(h.headerBuf)
	h.x.putSpanned(h.body)
	h.headerBuf, h.body = nil, nil
}

// putBuf takes the read buffer of up, the hedge's connection, back from it.
func (r *hedgeAttempt) putBuf(up *upstream.Conn) {
	r.resp.Detach()
	putBuffer(up.Buf)
	up.Buf = nil
}

// growBuf doubles the read buffer of the hedge's connection while a head is read, which is then parsed anew.
func (r *hedgeAttempt) growBuf() {
	r.resp.Detach()
	b := grow(r.up.Buf[:r.w], len(r.up.Buf))
	r.up.Buf = b[:cap(b)]
}

// checkDetached panics in builds that poison if anything that the exchange knows of still points into b.
func (x *exchange) checkDetached(b []byte) {
	if !poison.On || cap(b) == 0 {
		return
	}
	into := func(what string, span []byte) {
		at, from := uintptr(unsafe.Pointer(unsafe.SliceData(span))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
		if len(span) > 0 && from <= at && at < from+uintptr(cap(b)) {
			panic("a buffer went back while " + what + " points into it")
		}
	}
	into("the request's id", x.id)
	into("the made key", x.generatedKey)
	into("the read buffer", x.c.in)
	into("the detached head", x.headerBuf)
	into("what is written", x.requestHeaders)
	into("what is written", x.out)
	x.c.req.Spans(func(span []byte) { into("the request", span) })
	x.resp.Spans(func(span []byte) { into("the response", span) })
	x.buffered.resp.Spans(func(span []byte) { into("the response held", span) })
	if x.pumping {
		return // the vector and the body are the pump's
	}
	for _, part := range x.vec {
		into("what was written last", part)
	}
	for _, piece := range x.body.kept {
		into("the body", piece)
	}
}
