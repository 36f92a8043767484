package downstream

import "github.com/retryproxy/retryproxy/proxy/internal/buffer"

// Only this file returns the read buffer, which the spans of request headers point into, to its
// pool.

// PutIn returns the read buffer to its pool between requests.
func (c *Conn) PutIn() {
	c.Spans.DetachRequest()
	used := c.In
	c.In, c.R, c.W = nil, 0, 0
	c.Spans.CheckDetached(used)
	buffer.Put(used)
}

// ReplaceIn makes b the read buffer. Nothing may point into the current one.
func (c *Conn) ReplaceIn(b []byte) {
	used := c.In
	c.In = b
	c.Spans.CheckDetached(used)
	buffer.Put(used)
}

// GrowIn doubles the read buffer while headers are read. The headers are then parsed anew.
func (c *Conn) GrowIn() {
	c.Spans.DetachRequest()
	b := buffer.Grow(c.In[:c.W], c.W)
	c.In = b[:cap(b)]
}
