package upload

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// The goroutine of the exchange sends a body that is small and arrives at once. The pump sends a
// larger or slower one, so that the response is read at the same time. InlineWait bounds the sum
// of all waits for the body.
const (
	inlineBody = buffer.Large
	InlineWait = 20 * time.Millisecond
)

// IsBuffered reports whether the whole request is in memory and stays there. It can then be
// written together with the check of the connection, and again on another connection if the first
// is stale.
func (u *Upload) IsBuffered() bool {
	b := &u.r.Body
	if b.Framing.Kind == http1.BodyNone || b.Ended && b.Keeping && b.KeptLen <= inlineBody {
		return true
	}
	return b.Keeping && !b.Started && b.Framing.Kind == http1.BodyLength && int64(u.r.Conn.W-u.r.Conn.R) >= b.Left && b.Left <= inlineBody
}

// Gather returns the headers with the part of the body that has arrived. end reports whether that
// is all of it. It does not wait for more: the first bytes of a slow body are sent at once.
func (u *Upload) Gather(headers []byte, expect bool) (parts [][]byte, end bool, err error) {
	b := &u.r.Body
	parts = append(u.vec[:0], headers)
	if b.Framing.Kind == http1.BodyChunked {
		return u.gatherChunk(parts, expect)
	}
	for total := 0; !b.AtEnd(); {
		if expect || total >= inlineBody || len(parts) == cap(parts) || len(parts) > 1 && !b.Keeping {
			return parts, false, nil // a piece that is not kept is valid only until the next read
		}
		piece, err := b.NextNow()
		if err != nil {
			return parts, false, err
		}
		if len(piece) == 0 {
			return parts, false, nil
		}
		parts = append(parts, piece)
		total += len(piece)
	}
	return parts, true, nil
}

// gatherChunk does what Gather does for a chunked body, of which one piece is sent with the
// headers.
func (u *Upload) gatherChunk(parts [][]byte, expect bool) (_ [][]byte, end bool, err error) {
	b := &u.r.Body
	if expect || !b.Ready() {
		return parts, false, nil
	}
	piece, err := b.Next(InlineWait)
	if err == io.EOF || rawsocket.IsTimeout(err) {
		err = nil
	}
	end = b.AtEnd()
	return u.appendPiece(parts, piece, end), end, err
}

// SendInline sends what arrives at once, up to a bound, and leaves the rest to the pump.
func (u *Upload) SendInline(total int) {
	until := u.r.Time.Now().Add(InlineWait)
	if u.r.GRPC {
		until = u.r.Time.Now() // the client may wait for a response before it sends more
	}
	for total < inlineBody {
		piece, err := u.r.Body.Next(max(until.Sub(u.r.Time.Now()), time.Microsecond))
		if rawsocket.IsTimeout(err) {
			break
		}
		if err != nil && err != io.EOF {
			u.ClientFailed(err)
			return
		}
		end := err == io.EOF || u.r.Body.AtEnd()
		if _, err := u.write(piece, end); err != nil {
			u.att.Progress.Store(attempt.WriteFailed)
			return
		}
		if end {
			u.att.SentWhole()
			return
		}
		total += len(piece)
	}
	u.Start()
}

// write writes piece and end in the framing of the body.
func (u *Upload) write(piece []byte, end bool) (int, error) {
	parts := u.appendPiece(u.vec[:0], piece, end)
	if len(parts) == 0 {
		return 0, nil
	}
	if end {
		u.att.NoteEarly()
	}
	return u.WriteUp(parts)
}

// appendPiece appends piece and end in the framing of the body.
func (u *Upload) appendPiece(parts [][]byte, piece []byte, end bool) [][]byte {
	chunked := u.r.Body.Framing.Kind == http1.BodyChunked
	switch {
	case chunked && len(piece) > 0:
		size := http1.AppendChunkSize(u.sizeLine[:0], int64(len(piece)))
		parts = append(parts, size, piece, ChunkEnd)
	case len(piece) > 0:
		parts = append(parts, piece)
	}
	if chunked && end {
		parts = append(parts, u.LastChunk())
	}
	return parts
}

var (
	ChunkEnd  = []byte("\r\n")
	lastChunk = http1.AppendLastChunk(nil, nil)
)

func (u *Upload) LastChunk() []byte {
	if trailers := u.r.Dest.Forward.Changes.Trailers(u.r.Body.Chunked.Trailers()); len(trailers) > 0 {
		return http1.AppendLastChunk(nil, trailers)
	}
	return lastChunk
}

// WriteUp sends the parts in one write if the system can. It shortens them to what was not
// written.
func (u *Upload) WriteUp(parts [][]byte) (int, error) {
	u.att.ExtendWrite(u.r.Time.Now(), u.r.Time.BodyIdle())
	return u.att.Up.Writev(parts)
}

// Forget drops what the last write pointed to.
func (u *Upload) Forget() { clear(u.vec[:]) }

// CheckDetached panics if the last write still points into b. It has an effect only in builds that
// poison.
func (u *Upload) CheckDetached(b []byte) {
	for _, part := range u.vec {
		attempt.MustNotPointInto(b, "what was written last", part)
	}
}
