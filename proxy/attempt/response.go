package attempt

import (
	"errors"
	"io"
	"time"
	"unsafe"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/bridge"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
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
	// Inform takes an informational response, which is in a.Resp.
	Inform(a *Attempt)
}

// ReadFinalHeaders reads response headers until a.Resp holds final ones. All attempts read their
// headers here.
func (a *Attempt) ReadFinalHeaders(from Reader, limits http1.Limits, method []byte) policy.Cause {
	a.NeedBuffer()
	for range MaxInformational {
		if cause := a.readHeaders(from, limits, method); cause != policy.CauseStatus {
			return cause
		}
		switch status := a.Resp.Status; {
		case status == 101 && !from.AcceptsUpgrade(a):
			return policy.CauseMalformed
		case status >= 200 || status == 101:
			return policy.CauseStatus
		}
		from.Inform(a)
	}
	return policy.CauseMalformed
}

// readHeaders reads the headers of one response into a.Resp.
func (a *Attempt) readHeaders(from Reader, limits http1.Limits, method []byte) policy.Cause {
	for {
		if a.R < a.W {
			n, err := a.Resp.Parse(a.Up.Buf[a.R:a.W], limits, method)
			if err != nil {
				return causeOfHeaders(err)
			}
			if n > 0 {
				a.HeaderStart, a.HeaderEnd = int32(a.R), int32(a.R+n)
				a.R += n
				return policy.CauseStatus
			}
		}
		if err := a.EarlyErr; err != nil {
			a.EarlyErr = nil
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

// Body reads the body of an attempt's response without its framing.
type Body struct {
	a         *Attempt
	from      Reader
	Framing   http1.Framing
	Left      int64 // bytes still to come of a body with a length
	Chunked   http1.Chunked
	Ended     bool
	Prefix    []byte // already decoded, relayed first; owned by the body
	KeepBelow int    // bytes below it in the read buffer must stay
}

// Reset begins the body of the response whose headers are in a.Resp. It reads by from. limits are
// those of its trailers.
func (b *Body) Reset(a *Attempt, from Reader, limits http1.Limits) {
	b.a, b.from = a, from
	b.Framing, b.Left, b.KeepBelow = a.Resp.Body, a.Resp.Body.Length, 0
	b.Ended = b.Framing.Kind == http1.BodyNone || b.Framing.Kind == http1.BodyLength && b.Left == 0
	if b.Framing.Kind == http1.BodyChunked {
		b.Chunked.Reset(limits)
	}
}

// Release returns the prefix to its pool.
func (b *Body) Release() {
	buffer.Put(b.Prefix)
	b.Prefix = nil
}

// UntilClose reports whether the end of the connection is the end of the body.
func (b *Body) UntilClose() bool { return b.Framing.Kind == http1.BodyClose }

// Next returns the next piece, which is valid until the next call, or io.EOF at the proper end.
// The error is ErrCut if the upstream ended the body early or broke its framing, and
// ErrTrailersTooLarge if all of it came, but its trailers are beyond the limit. It is
// ErrClientGone if the client left, and a timeout if the body paused for idle.
func (b *Body) Next(idle time.Duration) ([]byte, error) {
	return b.next(func() time.Duration { return idle })
}

// NextBefore is like Next for a piece that arrives before until. Bytes of the framing do not
// extend that time.
func (b *Body) NextBefore(until clock.Instant) ([]byte, error) {
	return b.next(func() time.Duration { return max(until.Sub(b.a.Host.Clock.Now()), time.Millisecond) })
}

func (b *Body) next(wait func() time.Duration) ([]byte, error) {
	for !b.Ended {
		if piece, err := b.Buffered(); len(piece) > 0 || err != nil {
			return piece, err
		}
		if b.Ended {
			break
		}
		if err := b.fill(wait()); err != nil {
			return nil, err
		}
	}
	return nil, io.EOF
}

// Buffered is like Next but returns only what is in the read buffer. An empty piece means that
// nothing is.
func (b *Body) Buffered() ([]byte, error) {
	a := b.a
	have := a.Up.Buf[a.R:a.W]
	switch b.Framing.Kind {
	case http1.BodyLength:
		n := int(min(int64(len(have)), b.Left))
		b.Left -= int64(n)
		b.Ended = b.Left == 0
		a.R += n
		return have[:n], nil
	case http1.BodyChunked:
		return b.decode(have)
	}
	a.R = a.W
	return have, nil
}

// errLongTrailers is the error of http1.Chunked for trailers beyond the limit.
var errLongTrailers = http1.RefusalTrailersTooLarge.Err()

func (b *Body) decode(have []byte) ([]byte, error) {
	for len(have) > 0 {
		n, data, err := b.Chunked.Next(have)
		b.a.R += n
		have = have[n:]
		b.Ended = b.Chunked.Done()
		switch {
		case errors.Is(err, errLongTrailers):
			return nil, ErrTrailersTooLarge
		case err != nil:
			return nil, ErrCut
		case len(data) > 0:
			return data, nil
		case n == 0 || b.Ended:
			return nil, nil
		}
	}
	return nil, nil
}

// fill reads more from the upstream.
func (b *Body) fill(idle time.Duration) error {
	a := b.a
	b.useLargeBuffer()
	b.MakeRoom()
	err := b.from.Fill(a, idle)
	switch {
	case err == nil:
		return nil
	case err == io.EOF && b.UntilClose():
		b.Ended = true
		return nil
	case errors.Is(err, ErrClientGone) || rawsocket.IsTimeout(err):
		return err
	case errors.Is(err, bridge.ErrNotRead):
		return ErrClientGone // it reads, but not in time
	}
	return ErrCut
}

// MakeRoom moves the unread bytes down to KeepBelow.
func (b *Body) MakeRoom() {
	a := b.a
	if a.Up == nil || a.Up.Buf == nil { // the buffer was given up
		return
	}
	rest := copy(a.Up.Buf[b.KeepBelow:], a.Up.Buf[a.R:a.W])
	a.R, a.W = b.KeepBelow, b.KeepBelow+rest
}

// useLargeBuffer switches to a large buffer if more than a first read is to come.
func (b *Body) useLargeBuffer() {
	up := b.a.Up
	if b.KeepBelow > 0 || len(up.Buf) >= buffer.Large || b.a.Host.UnderPressure() || b.Framing.Kind == http1.BodyLength && b.Left <= buffer.Medium {
		return
	}
	wide := buffer.Get(buffer.Large)
	n := copy(wide, up.Buf[b.a.R:b.a.W])
	b.a.replaceBuffer(wide)
	b.a.R, b.a.W = 0, n
}

// Trailers returns the trailer fields after the end of the body.
func (b *Body) Trailers() []http1.Header {
	if b.Framing.Kind != http1.BodyChunked {
		return nil
	}
	return b.Chunked.Trailers()
}

// HeaderOrTrailer returns the value of a header of the response, or of a trailer after the end of
// the body.
func (a *Attempt) HeaderOrTrailer(name string) ([]byte, bool) {
	if v, ok := a.Resp.Lookup(name); ok {
		return v, true
	}
	if !a.Body.Ended || a.Body.Framing.Kind != http1.BodyChunked {
		return nil, false
	}
	for _, f := range a.Body.Chunked.Trailers() {
		if http1.EqualFold(f.Name, name) {
			return f.Value, true
		}
	}
	return nil, false
}

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
