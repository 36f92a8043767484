package downstream

import (
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// Buffered returns how many bytes were read and not yet used.
func (c *Conn) Buffered() int { return c.w - c.r }

// Peek returns the bytes that were read and not yet used. They are valid until the next read.
func (c *Conn) Peek() []byte { return c.in[c.r:c.w] }

// Discard counts the next n bytes as used. They stay valid until the next read.
func (c *Conn) Discard(n int) { c.r += n }

// Used returns the last n bytes that were discarded. Its capacity reaches to the end of what was read,
// so appending overwrites bytes that are not used yet.
func (c *Conn) Used(n int) []byte { return c.in[c.r-n : c.r : c.w] }

// Free returns the free end of the buffer, for a read by the caller, who then calls Received.
func (c *Conn) Free() []byte { return c.in[c.w:] }

// Received counts n bytes that were read into Free.
func (c *Conn) Received(n int) { c.w += n }

// HasRoom reports whether the buffer has a free end.
func (c *Conn) HasRoom() bool { return c.w < len(c.in) }

// HasBuffer reports whether there is a read buffer. An idle connection has none.
func (c *Conn) HasBuffer() bool { return c.in != nil }

// Memory returns the whole read buffer, for checks of who points into it.
func (c *Conn) Memory() []byte { return c.in }

// Begin gives a connection without a read buffer one of at least n bytes.
func (c *Conn) Begin(n int) { c.in, c.r, c.w = buffer.Get(n), 0, 0 }

// Request returns the request that ParseRequest parsed. Its spans point into the read buffer.
func (c *Conn) Request() *http1.Request { return &c.request }

// ParseRequest parses the request's headers, with which the buffer must begin, and discards them. It
// reports false if they are not complete.
func (c *Conn) ParseRequest(limits http1.Limits) (whole bool, err error) {
	n, err := c.parse(c.in[:c.w], limits)
	if n > 0 {
		c.r = n
	}
	return n > 0, err
}

// ReparseRequest parses headers again that are not complete, because their spans may lie in a buffer
// that was released since.
func (c *Conn) ReparseRequest(limits http1.Limits) {
	c.request.Reset()
	_, _ = c.parse(c.in[:c.w], limits)
}

// DetachHeaders returns the buffer, to which the request's spans point, and moves the unread bytes to
// a new one of at least n bytes. The caller returns it to its pool by buffer.Put.
func (c *Conn) DetachHeaders(n int) []byte {
	used, rest := c.in, c.Peek()
	c.in = buffer.Get(max(n, len(rest)))
	c.r, c.w = 0, copy(c.in, rest)
	return used
}

// CanShrink reports whether Shrink would save at least half of the read buffer.
func (c *Conn) CanShrink(tail int) bool { return 2*(c.w+tail) <= cap(c.in) }

// Shrink moves the request's headers and the unread bytes to memory that they fill but for tail bytes,
// and parses the headers again.
func (c *Conn) Shrink(tail int, limits http1.Limits) {
	exact := make([]byte, c.w+tail)
	copy(exact, c.in[:c.w])
	c.request.Reset()
	_, _ = c.parse(exact[:c.r], limits)
	c.replace(exact)
}

// ShrinkEmpty replaces the read buffer, of which everything is used, by one of n bytes.
func (c *Conn) ShrinkEmpty(n int) {
	c.replace(make([]byte, n))
	c.r, c.w = 0, 0
}

// EndRequest prepares the buffer for the next request. It keeps an empty buffer only if that is what
// the next request will be read into.
func (c *Conn) EndRequest() {
	c.Compact()
	if cap(c.in) != buffer.Small || c.readSize > buffer.Small {
		c.DropBuffer()
	}
}

// FillNow reads into a new buffer what has arrived, without waiting, and reports whether that was
// anything. It does not work under TLS.
func (c *Conn) FillNow() bool {
	c.ReleaseIdleBuffers()
	c.Begin(c.readSize)
	n, _ := c.ReadNow(c.in)
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
	if c.in != nil && c.r == c.w {
		c.PutIn()
	}
}

// Compact moves the unused bytes to the front of the buffer.
func (c *Conn) Compact() {
	switch {
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.r > 0:
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
}

// PutIn returns the read buffer to its pool between requests.
func (c *Conn) PutIn() {
	c.spans.DetachRequest()
	used := c.in
	c.in, c.r, c.w = nil, 0, 0
	c.spans.CheckDetached(used)
	buffer.Put(used)
}

// replace makes b the read buffer. Nothing may point into the current one.
func (c *Conn) replace(b []byte) {
	used := c.in
	c.in = b
	c.spans.CheckDetached(used)
	buffer.Put(used)
}

// GrowIn doubles the read buffer while headers are read. The headers are then parsed anew.
func (c *Conn) GrowIn() {
	c.spans.DetachRequest()
	b := buffer.Grow(c.in[:c.w], c.w)
	c.in = b[:cap(b)]
}
