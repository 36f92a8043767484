package attempt

import (
	"errors"
	"io"
	"time"
	"unsafe"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// MaxInformational bounds the 1xx responses before a final response.
const MaxInformational = 64

// Reader does for an attempt what concerns the client while the response is read.
type Reader interface {
	// Fill reads once from the upstream into the attempt's buffer, which has room. idle is how
	// long a body may pause; 0 means that headers are awaited.
	Fill(a *Attempt, idle time.Duration) error
	// AcceptsUpgrade reports whether the client asked for the upgrade in a 101.
	AcceptsUpgrade(a *Attempt) bool
	// Inform takes an informational response, which is in a.resp.
	Inform(a *Attempt)
}

// ReadFinalHeaders reads response headers until a.resp holds final ones. All attempts read their
// headers here.
func (a *Attempt) ReadFinalHeaders(from Reader, limits http1.Limits, method []byte) policy.Cause {
	a.NeedBuffer()
	for range MaxInformational {
		if cause := a.readHeaders(from, limits, method); cause != policy.CauseStatus {
			return cause
		}
		switch status := a.resp.Status; {
		case status == 101 && !from.AcceptsUpgrade(a):
			return policy.CauseMalformed
		case status >= 200 || status == 101:
			return policy.CauseStatus
		}
		from.Inform(a)
	}
	return policy.CauseMalformed
}

// readHeaders reads the headers of one response into a.resp.
func (a *Attempt) readHeaders(from Reader, limits http1.Limits, method []byte) policy.Cause {
	for {
		if a.R < a.W {
			n, err := a.resp.Parse(a.Up.Buf[a.R:a.W], limits, method)
			if err != nil {
				return causeOfHeaders(err)
			}
			if n > 0 {
				a.headerStart, a.headerEnd = int32(a.R), int32(a.R+n)
				a.R += n
				return policy.CauseStatus
			}
		}
		if err := a.earlyErr; err != nil {
			a.earlyErr = nil
			return a.causeOf(err)
		}
		a.makeRoom()
		if err := from.Fill(a, 0); err != nil {
			return a.causeOf(err)
		}
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

// Begun reports whether a part of the response came, informational responses included.
func (a *Attempt) Begun() bool { return a.Up != nil && a.R+a.W > 0 }

// causeOf returns the cause that corresponds to an error of reading headers.
func (a *Attempt) causeOf(err error) policy.Cause {
	switch {
	case rawsocket.IsTimeout(err) && a.Progress.Load() == WriteFailed:
		return policy.CauseReset
	case rawsocket.IsTimeout(err):
		return policy.CauseAttemptTimeout
	case errors.Is(err, upstream.ErrRefused), errors.Is(err, upstream.ErrUnprocessed) && !a.Reused:
		return policy.CauseRefusedStream
	case errors.Is(err, upstream.ErrUnprocessed):
		return policy.CauseIdleClose
	}
	return policy.CauseReset
}

// Plain is the Reader of an attempt that no client waits for.
type Plain struct{}

// Fill implements Reader.
func (Plain) Fill(a *Attempt, _ time.Duration) error { return a.Read() }

// AcceptsUpgrade implements Reader.
func (Plain) AcceptsUpgrade(*Attempt) bool { return false }

// Inform implements Reader.
func (Plain) Inform(*Attempt) {}

// HeaderOrTrailer returns the value of a header of the response, or of a trailer after the end of
// the body.
func (a *Attempt) HeaderOrTrailer(name string) ([]byte, bool) {
	if v, ok := a.resp.Lookup(name); ok {
		return v, true
	}
	if !a.body.ended || a.body.framing.Kind != http1.BodyChunked {
		return nil, false
	}
	for _, f := range a.body.chunked.Trailers() {
		if http1.EqualFold(f.Name, name) {
			return f.Value, true
		}
	}
	return nil, false
}

// GiveUpBuffer returns the upstream connection's read buffer to its pool.
func (a *Attempt) GiveUpBuffer() {
	a.resp.Detach()
	a.CheckDetached(a.Up.Buf)
	a.Buffers.Put(a.Up.Buf)
	a.Up.Buf = nil
}

// growBuffer doubles the upstream connection's read buffer while headers are read. The headers are
// then parsed anew.
func (a *Attempt) growBuffer() {
	a.resp.Detach()
	b := buffer.Grow(a.Up.Buf[:a.W], len(a.Up.Buf))
	a.Up.Buf = b[:cap(b)]
}

// replaceBuffer makes b the upstream connection's read buffer when the response headers are not
// needed any more.
func (a *Attempt) replaceBuffer(b []byte) {
	a.resp.Detach()
	used := a.Up.Buf
	a.Up.Buf = b
	a.CheckDetached(used)
	buffer.Put(used)
}

// CheckDetached panics if the response, or what was written last, still points into b. It has an effect
// only in builds that poison.
func (a *Attempt) CheckDetached(b []byte) {
	if poison.On && cap(b) > 0 {
		a.upload.checkDetached(b)
		a.resp.Spans(func(span []byte) { MustNotPointInto(b, "the response", span) })
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
