package downstream

import (
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// Buffered returns how many bytes were read and not yet used.
func (c *Conn) Buffered() int { return c.w - c.r }

// Peek returns the bytes that were read and not yet used. They are valid until the next read.
func (c *Conn) Peek() []byte { return c.in.Bytes()[c.r:c.w] }

// Discard counts the next n bytes as used. They stay valid until the next read.
func (c *Conn) Discard(n int) { c.r += n }

// Used returns the last n bytes that were discarded. Its capacity reaches to the end of what was read,
// so appending overwrites bytes that are not used yet.
func (c *Conn) Used(n int) []byte { return c.in.Bytes()[c.r-n : c.r : c.w] }

// Free returns the free end of the buffer, for a read by the caller, who then calls Received.
func (c *Conn) Free() []byte { return c.in.Bytes()[c.w:] }

// Received counts n bytes that were read into Free.
func (c *Conn) Received(n int) { c.w += n }

// HasRoom reports whether the buffer has a free end.
func (c *Conn) HasRoom() bool { return c.w < c.in.Cap() }

// HasBuffer reports whether there is a read buffer. An idle connection has none.
func (c *Conn) HasBuffer() bool { return c.in.Owns() }

// Memory returns the whole read buffer, for checks of who points into it.
func (c *Conn) Memory() []byte { return c.in.Bytes() }

// Begin gives a connection without a read buffer one of at least n bytes.
func (c *Conn) Begin(n int) {
	c.in.Get(nil, n)
	c.r, c.w = 0, 0
}

// Request returns the request that ParseRequest parsed. Its spans point into the read buffer.
func (c *Conn) Request() *http1.Request { return &c.request }

// ParseRequest parses the request's headers, with which the buffer must begin, and discards them. It
// reports false if they are not complete.
func (c *Conn) ParseRequest(limits http1.Limits) (whole bool, err error) {
	n, err := c.parse(c.in.Bytes()[:c.w], limits)
	if n > 0 {
		c.r = n
	}
	return n > 0, err
}

// ReparseRequest parses headers again that are not complete, because their spans may lie in a buffer
// that was released since.
func (c *Conn) ReparseRequest(limits http1.Limits) {
	c.request.Reset()
	_, _ = c.parse(c.in.Bytes()[:c.w], limits)
}

// DetachHeaders moves the buffer, to which the request's spans point, to used, and the unread bytes to a new one of
// at least n bytes.
func (c *Conn) DetachHeaders(n int, used *buffer.Spanned[SpanHolder]) {
	rest := c.Peek()
	head := c.in.Take()
	c.in.Get(nil, max(n, len(rest)))
	c.r, c.w = 0, copy(c.in.Bytes(), rest)
	used.Hold(&head)
}

// CanShrink reports whether Shrink would save at least half of the read buffer.
func (c *Conn) CanShrink(tail int) bool { return 2*(c.w+tail) <= c.in.Cap() }

// Shrink moves the request's headers and the unread bytes to memory that they fill but for tail bytes,
// and parses the headers again.
func (c *Conn) Shrink(tail int, limits http1.Limits) {
	exact := buffer.New(c.w + tail)
	copy(exact.Bytes(), c.in.Bytes()[:c.w])
	c.request.Reset()
	_, _ = c.parse(exact.Bytes()[:c.r], limits)
	c.in.Replace(&exact, c.spans)
}

// ShrinkEmpty replaces the read buffer, of which everything is used, by one of n bytes.
func (c *Conn) ShrinkEmpty(n int) {
	empty := buffer.New(n)
	c.in.Replace(&empty, c.spans)
	c.r, c.w = 0, 0
}

// EndRequest prepares the buffer for the next request. It keeps an empty buffer only if that is what
// the next request will be read into.
func (c *Conn) EndRequest() {
	c.Compact()
	if c.in.Cap() != buffer.Small || c.readSize > buffer.Small {
		c.DropBuffer()
	}
}

// FillNow reads into a new buffer what has arrived, without waiting, and reports whether that was
// anything. It does not work under TLS.
func (c *Conn) FillNow() bool {
	c.ReleaseIdleBuffers()
	c.Begin(c.readSize)
	n, _ := c.ReadNow(c.Free())
	c.w = n
	c.DropBuffer()
	return n > 0
}

// SizeNextRead sets the size of the buffer for the next request from this one. Clients that send
// small bodies send more of them, and headers and body then arrive in one read.
func (c *Conn) SizeNextRead(f http1.Framing) {
	c.readSize = buffer.Small
	if f.Kind == http1.BodyLength && f.Length <= buffer.Wide {
		c.readSize = min(c.r+int(f.Length), buffer.Wide)
	}
}

// ReleaseIdleBuffers returns all empty buffers, because the wait may be long.
func (c *Conn) ReleaseIdleBuffers() {
	c.DropBuffer()
	c.Buffers.Release()
}

// DropBuffer returns the read buffer to its pool if it is empty.
func (c *Conn) DropBuffer() {
	if c.in.Owns() && c.r == c.w {
		c.PutIn()
	}
}

// Compact moves the unused bytes to the front of the buffer.
func (c *Conn) Compact() {
	switch {
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.r > 0:
		c.w = copy(c.in.Bytes(), c.Peek())
		c.r = 0
	}
}

// PutIn returns the read buffer to its pool between requests.
func (c *Conn) PutIn() {
	c.in.Put(nil, c.spans)
	c.r, c.w = 0, 0
}

// GrowIn doubles the read buffer while headers are read. The headers are then parsed anew.
func (c *Conn) GrowIn() { c.in.Grow(c.w, c.spans) }
