package attempt

import (
	"errors"
	"io"
	"time"
	"unsafe"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// conn is an upstream connection with its deadlines, the buffer that it is read into, and the headers
// that were parsed from there.
type conn struct {
	env     *Env
	buffers *buffer.Cache  // the source of read buffers
	up      *upstream.Conn // nil: none yet, or handed over

	buf         []byte // read buffer; nil: none
	r, w        int    // buf[r:w] is read and not yet used
	headerStart int32  // buf[headerStart:headerEnd] holds the headers in resp until more of the response is read
	headerEnd   int32
	earlyErr    error // a read error that came before the response was due
	resp        http1.Response
}

// use makes up the connection.
func (c *conn) use(up *upstream.Conn) {
	c.up = up
	c.r, c.w, c.earlyErr = 0, 0, nil
	c.resp.Restart()
}

// take transfers the connection to the caller, without its read buffer. It returns nil if there is
// none.
func (c *conn) take() *upstream.Conn {
	up := c.up
	if up != nil {
		c.giveUpBuffer()
		c.up = nil
	}
	return up
}

// release returns a connection whose response was read to the end to its pool, where it may be idle for idle;
// 0 means for any time. now is the time. A connection that was bounded for want of memory does not outlive that.
func (c *conn) release(now clock.Instant, idle time.Duration) {
	if c.up.IsBounded() && !c.env.Host.UnderPressure() {
		c.close()
		return
	}
	up := c.take()
	up.ReleaseAt(time.Duration(now), idle)
}

// close closes a connection whose response was read to the end. It skips TLS's close_notify, which might
// wait for a peer that does not read.
func (c *conn) close() {
	up := c.take()
	if up.Raw() == nil {
		up.Abort()
		return
	}
	_ = up.Close()
}

// begun reports whether a part of the response came, informational responses included.
func (c *conn) begun() bool { return c.up != nil && c.r+c.w > 0 }

// unread returns what was read and is not yet used.
func (c *conn) unread() []byte { return c.buf[c.r:c.w] }

// hasUnread reports whether there is some.
func (c *conn) hasUnread() bool { return c.r < c.w }

// consume uses n bytes of what is unread.
func (c *conn) consume(n int) { c.r += n }

// sendChecked sends a request of HTTP/1.1 if the connection is still open, and waits for the first bytes of
// the response.
func (c *conn) sendChecked(parts [][]byte) (n int, err error) {
	n, c.w, err = c.up.SendChecked(parts, c.buf)
	return n, err
}

// moveResponse moves the response to resp and returns its buffer, which the caller owns from now on. Its
// headers are buffer[start:end].
func (c *conn) moveResponse(resp *http1.Response) (buffer []byte, start, end int32) {
	*resp, c.resp = c.resp, *resp
	buffer, c.buf = c.buf, nil
	return buffer, c.headerStart, c.headerEnd
}

// extendWrite keeps the write deadline between idle and twice idle away; 0 means no deadline. The
// deadline may stem from an earlier request of another route.
func (c *conn) extendWrite(now clock.Instant, idle time.Duration) {
	by := c.writeBy()
	left := by.Sub(now)
	switch {
	case idle <= 0 && by.IsZero() || idle > 0 && left >= idle && left <= 2*idle:
		return
	case idle <= 0:
		by = 0
	default:
		by = now.Add(2 * idle)
	}
	c.up.SetWriteBy(time.Duration(by))
}

// readBy returns the read deadline now set; zero means none, or unknown.
func (c *conn) readBy() clock.Instant { return clock.Instant(c.up.ReadBy()) }

// writeBy returns the write deadline now set; zero means none. It is unknown after a hedge was adopted, but its
// request was sent whole.
func (c *conn) writeBy() clock.Instant { return clock.Instant(c.up.WriteBy()) }

// forgetRead notes that another goroutine may have moved the read deadline.
func (c *conn) forgetRead() {
	if c.up != nil {
		c.up.ForgetReadBy()
	}
}

// setRead sets the read deadline.
func (c *conn) setRead(until clock.Instant) {
	c.up.SetReadBy(time.Duration(until))
}

// read reads once into the read buffer, which must have room. A stream has none before its first bytes come.
func (c *conn) read() error {
	if c.buf == nil {
		return c.readHead()
	}
	n, err := c.up.Read(c.buf[c.w:])
	c.w += n
	switch {
	case n > 0:
		return nil
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// readHead makes the first bytes of a stream's response the read buffer.
func (c *conn) readHead() error {
	head, err := c.up.ReadHead()
	if len(head) == 0 {
		return err
	}
	c.buf, c.w = head[:cap(head)], len(head)
	if len(c.buf)-c.w < minBodyRoom {
		c.growBuffer()
	}
	return nil
}

// parseHeaders parses the headers of one response, if they are in the buffer. It makes room for more of
// them otherwise.
func (c *conn) parseHeaders(limits http1.Limits, method []byte) (whole bool, err error) {
	if c.hasUnread() {
		n, err := c.up.ReadResponse(&c.resp, c.unread(), limits, method)
		if err != nil {
			return false, err
		}
		if n > 0 {
			c.headerStart, c.headerEnd = int32(c.r), int32(c.r+n)
			c.r += n
			return true, nil
		}
	}
	return false, nil
}

// failedEarly records a read error that came before the response was due.
func (c *conn) failedEarly(err error) { c.earlyErr = err }

// takeEarlyErr returns the read error that came before the response was due, once.
func (c *conn) takeEarlyErr() error {
	err := c.earlyErr
	c.earlyErr = nil
	return err
}

// needBuffer gives the connection a read buffer, if it has none. A stream brings one with its headers.
func (c *conn) needBuffer() {
	if c.buf == nil && !c.up.Stream() {
		c.buf = c.buffers.Get(buffer.Medium)
	}
}

// makeRoom makes room for more headers in the read buffer.
func (c *conn) makeRoom() {
	switch {
	case c.w < len(c.buf), c.buf == nil:
	case c.r == 0:
		c.growBuffer()
	default:
		c.moveDown(0)
	}
}

// moveDown moves what is unread down to offset to.
func (c *conn) moveDown(to int) {
	rest := copy(c.buf[to:], c.unread())
	c.r, c.w = to, to+rest
}

// giveUpBuffer returns the read buffer to its pool.
func (c *conn) giveUpBuffer() {
	c.resp.Detach()
	c.checkDetached(c.buf)
	c.buffers.Put(c.buf)
	c.buf = nil
}

// growBuffer doubles the read buffer while headers are read. The headers are then parsed anew.
func (c *conn) growBuffer() {
	c.resp.Detach()
	b := buffer.Grow(c.buf[:c.w], len(c.buf))
	c.buf = b[:cap(b)]
}

// enlargeBuffer switches to a read buffer of that size when the response headers are not needed any more.
func (c *conn) enlargeBuffer(size int) {
	wide, used := buffer.Get(size), c.buf
	n := copy(wide, c.unread())
	c.resp.Detach()
	c.buf = wide
	c.checkDetached(used)
	buffer.Put(used)
	c.r, c.w = 0, n
}

// checkDetached panics if the response still points into b. It has an effect only in builds that
// poison.
func (c *conn) checkDetached(b []byte) {
	if poison.On && cap(b) > 0 {
		c.resp.Spans(func(span []byte) { MustNotPointInto(b, "the response", span) })
	}
}

// MustNotPointInto panics if span points into b. what names the span in the message.
func MustNotPointInto(b []byte, what string, span []byte) {
	at, from := uintptr(unsafe.Pointer(unsafe.SliceData(span))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if len(span) > 0 && from <= at && at < from+uintptr(cap(b)) {
		panic("a buffer went back while " + what + " points into it")
	}
}

// causeOfHeaders returns the cause that corresponds to an error of parsing headers.
func causeOfHeaders(err error) policy.Cause {
	var fault *http1.Error
	if errors.As(err, &fault) && (fault.Reason == http1.RefusalHeadersTooLarge || fault.Reason == http1.RefusalTooManyHeaders) {
		return policy.CauseHeadersTooLarge
	}
	return policy.CauseMalformed
}
