package attempt

import (
	"errors"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// conn is an upstream connection with its deadlines, the buffer that it is read into, and the headers
// that were parsed from there.
type conn struct {
	env     *Env
	buffers *buffer.Cache  // the source of read buffers; nil: the pools
	up      *upstream.Conn // nil: none yet, or handed over

	buf         buffer.Spanned[*conn] // read buffer
	r, w        int                   // buf[r:w] is read and not yet used
	headerStart int32                 // buf[headerStart:headerEnd] holds the headers in resp until more of the response is read
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
func (c *conn) unread() []byte { return c.buf.Bytes()[c.r:c.w] }

// free returns the free end of the read buffer.
func (c *conn) free() []byte { return c.buf.Bytes()[c.w:] }

// size returns the size of the read buffer; 0: there is none.
func (c *conn) size() int { return c.buf.Cap() }

// hasUnread reports whether there is some.
func (c *conn) hasUnread() bool { return c.r < c.w }

// consume uses n bytes of what is unread.
func (c *conn) consume(n int) { c.r += n }

// sendChecked sends a request of HTTP/1.1 if the connection is still open, and waits for the first bytes of
// the response.
func (c *conn) sendChecked(parts [][]byte) (n int, err error) {
	n, c.w, err = c.up.SendChecked(parts, c.buf.Bytes())
	return n, err
}

// moveResponse moves the response to resp, and the buffer that it points into to the Handle that it returns. The
// headers are in [start:end] of it.
func (c *conn) moveResponse(resp *http1.Response) (from buffer.Handle, start, end int32) {
	*resp, c.resp = c.resp, *resp
	return c.buf.Take(), c.headerStart, c.headerEnd
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
	if !c.buf.Owns() {
		return c.readHead()
	}
	n, err := c.up.Read(c.free())
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
	if head.Len() == 0 {
		return err
	}
	c.w = c.buf.HoldAll(&head)
	if c.size()-c.w < minBodyRoom {
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
	if !c.buf.Owns() && !c.up.Stream() {
		c.buf.Get(c.buffers, buffer.Medium)
	}
}

// makeRoom makes room for more headers in the read buffer.
func (c *conn) makeRoom() {
	switch {
	case c.w < c.size(), !c.buf.Owns():
	case c.r == 0:
		c.growBuffer()
	default:
		c.moveDown(0)
	}
}

// moveDown moves what is unread down to offset to.
func (c *conn) moveDown(to int) {
	rest := copy(c.buf.Bytes()[to:], c.unread())
	c.r, c.w = to, to+rest
}

// giveUpBuffer returns the read buffer to its pool.
func (c *conn) giveUpBuffer() { c.buf.Put(c.buffers, c) }

// growBuffer doubles the read buffer while headers are read. The headers are then parsed anew.
func (c *conn) growBuffer() { c.buf.Grow(c.w, c) }

// enlargeBuffer switches to a read buffer of that size when the response headers are not needed any more.
func (c *conn) enlargeBuffer(size int) {
	wide := buffer.Get(size)
	n := copy(wide.Bytes(), c.unread())
	c.Detach()
	c.buf.Replace(&wide, c)
	c.r, c.w = 0, n
}

// Detach implements buffer.Spans.
func (c *conn) Detach() { c.resp.Detach() }

// CheckDetached implements buffer.Spans.
func (c *conn) CheckDetached(b []byte) {
	c.resp.Spans(func(span []byte) { buffer.MustNotPointInto(b, "the response", span) })
}

// causeOfHeaders returns the cause that corresponds to an error of parsing headers.
func causeOfHeaders(err error) policy.Cause {
	var fault *http1.Error
	if errors.As(err, &fault) && (fault.Reason == http1.RefusalHeadersTooLarge || fault.Reason == http1.RefusalTooManyHeaders) {
		return policy.CauseHeadersTooLarge
	}
	return policy.CauseMalformed
}
