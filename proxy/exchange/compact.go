package exchange

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

const (
	// compactAbove is how many requests may wait at once before their memory is worth
	// the copying.
	CompactAbove = 64
	// readTail is room for what a client sends while its request waits.
	readTail = 64
)

// compact makes the exchange small for a wait in which there may be thousands: what is kept moves
// out of the buffers that it was read into. Headers are parsed again where they are then, which
// is cheaper than keeping every buffer.
func (x *Exchange) compact() {
	buffer.Put(x.RequestHeaders)
	x.RequestHeaders = nil
	x.Conn.Buffers.Release()
	if !x.upload.Running { // which writes by them
		clear(x.upload.vec[:]) // what was written still points into buffers
	}
	x.buffered.compact()
	x.compactRequest()
	x.Process.OnWait()
}

// compactRequest is compact for the client's read buffer.
func (x *Exchange) compactRequest() {
	c := x.Conn
	switch {
	case x.upload.Running || x.hedge.running != nil: // another goroutine may read it
	case x.HeaderBuf != nil && x.Body.Ended && c.R == c.W: // a chunked body was read through it
		c.ReplaceIn(make([]byte, readTail))
		c.R, c.W = 0, 0
	case x.HeaderBuf == nil && x.Body.Framing.Kind == http1.BodyNone && 2*(c.W+readTail) <= cap(c.In):
		exact := make([]byte, c.W+readTail)
		copy(exact, c.In[:c.W])
		x.OwnID()
		_, _ = c.Request.Parse(exact[:c.R], x.Settings.Limits)
		c.ReplaceIn(exact)
	}
}

// compact is exchange.compact for the response. Its headers are parsed again when they are
// needed.
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
	h.x.Process.RetryBuffer.Give(saved)
	h.charged -= saved
}

// restoreHeaders undoes what compact did to the headers.
func (h *bufferedResponse) restoreHeaders() {
	if h.compacted {
		_, _ = h.resp.Parse(h.headerBuf, h.x.Settings.Limits, h.x.HTTP.Method)
	}
}
