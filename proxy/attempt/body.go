package attempt

import (
	"errors"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

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

// Reset begins the body of the response whose headers are in a.Resp. It reads by from.
func (b *Body) Reset(a *Attempt, from Reader) {
	b.a, b.from = a, from
	b.Framing, b.Left, b.KeepBelow = a.Resp.Body, a.Resp.Body.Length, 0
	b.Ended = b.Framing.Kind == http1.BodyNone || b.Framing.Kind == http1.BodyLength && b.Left == 0
	if b.Framing.Kind == http1.BodyChunked {
		b.Chunked.Reset()
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
// The error is ErrCut if the upstream ended the body early or broke its framing. It is
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

func (b *Body) decode(have []byte) ([]byte, error) {
	for len(have) > 0 {
		n, data, err := b.Chunked.Next(have)
		b.a.R += n
		have = have[n:]
		b.Ended = b.Chunked.Done()
		switch {
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
