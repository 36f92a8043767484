package attempt

import (
	"io"
	"unsafe"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// GiveUpBuffer returns the upstream connection's read buffer to its pool.
func (a *Attempt) GiveUpBuffer() {
	a.Resp.Detach()
	a.CheckDetached(a.Up.Buf)
	a.Buffers.Put(a.Up.Buf)
	a.Up.Buf = nil
}

// growBuffer doubles the upstream connection's read buffer while headers are read. The headers are
// then parsed anew.
func (a *Attempt) growBuffer() {
	a.Resp.Detach()
	b := buffer.Grow(a.Up.Buf[:a.W], len(a.Up.Buf))
	a.Up.Buf = b[:cap(b)]
}

// replaceBuffer makes b the upstream connection's read buffer when the response headers are not
// needed any more.
func (a *Attempt) replaceBuffer(b []byte) {
	a.Resp.Detach()
	used := a.Up.Buf
	a.Up.Buf = b
	a.CheckDetached(used)
	buffer.Put(used)
}

// CheckDetached panics if the response still points into b. It has an effect only in builds that
// poison.
func (a *Attempt) CheckDetached(b []byte) {
	if poison.On && cap(b) > 0 {
		a.Resp.Spans(func(span []byte) { MustNotPointInto(b, "the response", span) })
	}
}

// MustNotPointInto panics if span points into b. what names the span in the message.
func MustNotPointInto(b []byte, what string, span []byte) {
	at, from := uintptr(unsafe.Pointer(unsafe.SliceData(span))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if len(span) > 0 && from <= at && at < from+uintptr(cap(b)) {
		panic("a buffer went back while " + what + " points into it")
	}
}

// NeedBuffer gives the connection a read buffer, if it has none.
func (a *Attempt) NeedBuffer() {
	if a.Up.Buf == nil {
		a.Up.Buf = a.Buffers.Get(buffer.Medium)
	}
}

// makeRoom makes room for more headers in the read buffer.
func (a *Attempt) makeRoom() {
	switch {
	case a.W < len(a.Up.Buf):
	case a.R == 0:
		a.growBuffer()
	default:
		a.W = copy(a.Up.Buf, a.Up.Buf[a.R:a.W])
		a.R = 0
	}
}

// Read reads once from the connection into the read buffer, which must have room.
func (a *Attempt) Read() error {
	n, err := a.Up.Read(a.Up.Buf[a.W:])
	a.W += n
	switch {
	case n > 0:
		return nil
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}
