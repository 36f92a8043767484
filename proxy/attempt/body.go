package attempt

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// minBodyRoom is the least room, in bytes, behind the headers for reading a body ahead.
const minBodyRoom = 512

// Body is the body of an attempt's response, without its framing. Until HeadersSent is called, the
// headers stay in the read buffer, and what is read ahead is held.
type Body struct {
	a         *Attempt
	framing   http1.Framing
	left      int64         // bytes still to come of a body with a length
	chunked   http1.Chunked // has the trailers
	ended     bool
	keepBelow int32         // bytes below it in the read buffer must stay
	held      buffer.Handle // read ahead and decoded
}

// begin begins the body of the response whose headers were read.
func (b *Body) begin(a *Attempt) {
	resp := a.Response()
	b.a = a
	if a.options.Form == wire.Lines {
		endAtLength(resp)
	}
	b.framing, b.left, b.keepBelow = resp.Body, resp.Body.Length, int32(a.conn.r)
	b.ended = b.framing.Kind == http1.BodyNone || b.framing.Kind == http1.BodyLength && b.left == 0
	if b.framing.HasTrailers() {
		b.chunked.Reset(a.options.Limits)
	}
	if b.framing.Kind == http1.BodyStream {
		b.atStreamEnd()
	}
}

// atStreamEnd notes the end of a body that ends with its stream, if all of it was taken and its trailers
// are within their limits. Otherwise the next read finds out.
func (b *Body) atStreamEnd() {
	up := b.a.conn.up
	b.ended = up.AtEnd() && !b.a.HasUnread() && b.chunked.TakeTrailers(up.Trailers()) == nil
}

// endAtLength makes a body with a declared length end with its last byte, for a client over HTTP/1.1, which has
// no trailers behind a length. The stream may end later. If trailers are to be expected, the length gives way
// to them.
func endAtLength(resp *http1.Response) {
	if resp.Body.Kind == http1.BodyStream && resp.Body.Length >= 0 && resp.Get(http1.Trailer) == nil && !forward.IsGRPC(resp.Get(http1.ContentType)) {
		resp.Body.Kind = http1.BodyLength
	}
}

// Framing returns how the upstream framed the body.
func (b *Body) Framing() http1.Framing { return b.framing }

// Exceeds reports whether the declared length of the body is more than n bytes.
func (b *Body) Exceeds(n int64) bool { return b.framing.Length > n }

// Ended reports whether the body was read to its end.
func (b *Body) Ended() bool { return b.ended }

// UntilClose reports whether the end of the connection is the end of the body.
func (b *Body) UntilClose() bool { return b.framing.Kind == http1.BodyClose }

// HeadersSent allows the room of the headers to be used for the body.
func (b *Body) HeadersSent() { b.keepBelow = 0 }

// HasRoom reports whether the headers leave room to read the body ahead.
func (b *Body) HasRoom() bool {
	return int(b.keepBelow) <= b.a.conn.size()-minBodyRoom
}

// Held returns the beginning of the body that was read ahead. It is valid until the next call.
func (b *Body) Held() []byte { return b.held.Bytes() }

// ReadAhead reads the next piece, which must arrive before until, and holds it. It returns by how many
// bytes that made the memory grow, and the errors of Next.
func (b *Body) ReadAhead(until clock.Instant) (grew int, err error) {
	return b.hold(b.next(func() time.Duration { return max(until.Sub(b.a.now()), time.Millisecond) }))
}

// ReadAheadWithin is like ReadAhead, for a piece before which the body pauses for at most idle.
func (b *Body) ReadAheadWithin(idle time.Duration) (grew int, err error) { return b.hold(b.Next(idle)) }

func (b *Body) hold(piece []byte, err error) (grew int, _ error) {
	if len(piece) == 0 {
		return 0, err
	}
	before := b.held.Cap()
	b.held.Append(piece)
	return b.held.Cap() - before, err
}

// Next returns the next piece, which is valid until the next call, or io.EOF at the proper end.
// The error is ErrCut if the upstream ended the body early or broke its framing, and
// ErrTrailersTooLarge if all of it came, but its trailers are beyond the limit. It is
// ErrClientGone if the client left, and a timeout if the body paused for idle.
func (b *Body) Next(idle time.Duration) ([]byte, error) {
	return b.next(func() time.Duration { return idle })
}

func (b *Body) next(wait func() time.Duration) ([]byte, error) {
	for !b.ended {
		if piece, err := b.Buffered(); len(piece) > 0 || err != nil {
			return piece, err
		}
		if b.ended {
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
	have := b.a.conn.unread()
	switch b.framing.Kind {
	case http1.BodyLength:
		n := int(min(int64(len(have)), b.left))
		b.took(int64(n))
		b.a.conn.consume(n)
		return have[:n], nil
	case http1.BodyChunked:
		return b.decode(have)
	case http1.BodyStream:
		b.a.conn.consume(len(have))
		b.left -= int64(len(have))
		b.atStreamEnd()
		return have, nil
	}
	b.a.conn.consume(len(have))
	return have, nil
}

// took counts bytes of a body with a length.
func (b *Body) took(n int64) {
	b.left -= n
	b.ended = b.left == 0
}

// errLongTrailers is the error of http1.Chunked for trailers beyond the limit.
var errLongTrailers = http1.RefusalTrailersTooLarge.Err()

func (b *Body) decode(have []byte) ([]byte, error) {
	for len(have) > 0 {
		n, data, err := b.chunked.Next(have)
		b.a.conn.consume(n)
		have = have[n:]
		b.ended = b.chunked.Done()
		switch {
		case errors.Is(err, errLongTrailers):
			return nil, ErrTrailersTooLarge
		case err != nil:
			return nil, ErrCut
		case len(data) > 0:
			return data, nil
		case n == 0 || b.ended:
			return nil, nil
		}
	}
	return nil, nil
}

// fill reads more from the upstream.
func (b *Body) fill(idle time.Duration) error {
	b.useLargeBuffer()
	b.a.conn.moveDown(int(b.keepBelow))
	if b.lacksOnlyItsEnd() {
		idle = min(idle, endWithin)
	}
	err := b.fillBody(idle)
	switch {
	case err == nil:
		return nil
	case err == io.EOF && b.UntilClose():
		b.ended = true
		return nil
	case err == io.EOF && b.framing.Kind == http1.BodyStream:
		if b.atStreamEnd(); b.ended {
			return nil
		}
		return ErrTrailersTooLarge
	case b.lacksOnlyItsEnd() && !errors.Is(err, ErrClientGone) && !errors.Is(err, errLongTrailers):
		b.ended = true
		return nil
	case errors.Is(err, ErrClientGone) || rawsocket.IsTimeout(err):
		return err
	case errors.Is(err, http2.ErrNotRead):
		return ErrClientGone // it reads, but not in time
	case errors.Is(err, errLongTrailers):
		return ErrTrailersTooLarge
	}
	return ErrCut
}

// endWithin is how long the end of a stream, with its trailers, may follow the last byte of a declared length. The
// response is whole without it.
const endWithin = 5 * time.Second

// lacksOnlyItsEnd reports whether all bytes of a declared length came, but not the end of their stream.
func (b *Body) lacksOnlyItsEnd() bool {
	return b.framing.Kind == http1.BodyStream && b.framing.Length > 0 && b.left == 0 && !b.a.HasUnread()
}

// useLargeBuffer switches to a larger buffer if the rest of the body does not fit.
func (b *Body) useLargeBuffer() {
	size := buffer.Large
	if b.framing.Length > 0 {
		size = int(min(b.left, buffer.Large))
	}
	if b.a.host().UnderPressure() {
		size = min(size, buffer.Medium)
	}
	if b.keepBelow == 0 && b.a.conn.size() < size {
		b.a.conn.enlargeBuffer(size)
	}
}

// Trailers returns the trailer fields after the end of the body.
func (b *Body) Trailers() []http1.Header {
	if !b.framing.HasTrailers() {
		return nil
	}
	return b.chunked.Trailers()
}

// A piece of a body that the kernel moves is as long as SplicePiece: one piece within the body idle
// timeout of 60 s is the slowest rate allowed for a peer, 4.3 KiB/s.
const (
	SplicePiece = 256 << 10
	SpliceFrom  = 32 << 10 // a smaller body is not worth the set-up
)

// CanSplice reports whether the rest of the body can move inside the kernel. While the request's body is
// sent, it cannot.
func (b *Body) CanSplice() bool {
	return b.framing.Kind == http1.BodyLength && b.left >= SpliceFrom && !b.a.HasUnread() && !b.a.upload.hasBody() && b.a.upload.up().TCP() != nil && rawsocket.CanSplice()
}

// SpliceTo moves the next piece to dst inside the kernel. The upstream may pause until then. whole
// reports whether the piece was moved; if not, SpliceEnded has the reason.
func (b *Body) SpliceTo(dst *net.TCPConn, until, now clock.Instant) (n int64, whole bool, err error) {
	b.a.setReadOfPiece(until, now)
	if !b.a.client().ClientStaysOn() {
		return 0, false, ErrClientGone
	}
	want := min(b.left, SplicePiece)
	n, err = Splice(dst, b.a.conn.up.TCP(), want)
	b.took(n)
	return n, n == want, err
}

// SpliceEnded returns why a splice ended early with err although the client takes its response, or nil
// if it can continue.
func (b *Body) SpliceEnded(err error, until clock.Instant) error {
	client := b.a.client()
	switch {
	case err == ErrClientGone:
		return err
	case rawsocket.IsTimeout(err) && b.a.upload.leftWhileStuck():
		client.ClientFailed(ErrClientGone)
		return ErrClientGone
	case rawsocket.IsTimeout(err) && b.a.now().Before(until):
		b.a.upload.startWatch(nil) // the time before the client is watched is over, or the pump woke this goroutine
		return nil
	case err != nil && !rawsocket.IsTimeout(err) && client.ClientHungUp():
		return ErrClientGone
	}
	return ErrCut
}

// Splice moves n bytes from src to dst inside the kernel. It moves fewer only with an error, or if src
// ended.
func Splice(dst, src *net.TCPConn, n int64) (int64, error) {
	left := limits.Get().(*io.LimitedReader)
	left.R, left.N = src, n
	moved, err := dst.ReadFrom(left)
	left.R = nil
	limits.Put(left)
	rawsocket.NoteSplice(err)
	return moved, err
}

// limits are pooled, so that Splice does not allocate.
var limits = sync.Pool{New: func() any { return new(io.LimitedReader) }}
