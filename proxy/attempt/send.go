package attempt

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// The goroutine that makes the attempt sends a body that is small and arrives at once. The pump sends a
// larger or slower one, so that the response is read at the same time. InlineWait bounds the sum
// of all waits for the body.
const (
	inlineBody = buffer.Large
	InlineWait = 20 * time.Millisecond
)

// IsBuffered reports whether the whole request is in memory and stays there. It can then be
// written together with the check of the connection, and again on another connection if the first
// is stale.
func (u *Upload) IsBuffered() bool { return u.a.source.IsInMemory(inlineBody) }

// Gather returns the headers with the part of the body that has arrived. end reports whether that
// is all of it. It does not wait for more: the first bytes of a slow body are sent at once.
func (u *Upload) Gather(headers []byte, expect bool) (parts [][]byte, end bool, err error) {
	src := u.a.source
	parts = append(u.vec[:0], headers)
	if src.Framing().Kind == http1.BodyChunked {
		return u.gatherChunk(parts, expect)
	}
	for total := 0; !src.AtEnd(); {
		if expect || total >= inlineBody || len(parts) == cap(parts) || len(parts) > 1 && !src.Keeps() {
			return parts, false, nil // a piece that is not kept is valid only until the next read
		}
		piece, err := src.NextNow()
		if err != nil {
			u.forget()
			return nil, false, err
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
	src := u.a.source
	if expect || !src.Ready() {
		return parts, false, nil
	}
	piece, err := src.Next(InlineWait)
	if err != nil && err != io.EOF && !rawsocket.IsTimeout(err) {
		u.forget()
		return nil, false, err
	}
	end = src.AtEnd()
	return u.appendPiece(parts, piece, end), end, nil
}

// Send writes the parts of the request, whose headers have headerLen bytes. The rest of its body is
// sent here or by the pump; if expect is set, by the pump. It does not return a failure after the first
// byte, because the upstream may have responded before the failure.
func (u *Upload) Send(parts [][]byte, headerLen int, expect, end bool) SendEnd {
	a := u.a
	if a.Unchecked && a.Reused && !a.Up.StillOpen() {
		u.forget()
		return Stale
	}
	total := length(parts)
	n, err := u.writev(parts)
	u.forget()
	a.GotBytes = n > 0
	switch {
	case n == 0 && err != nil:
		return NotTaken
	case err != nil:
		a.Progress.Store(WriteFailed)
	case end:
		u.sentWhole()
	case expect:
		u.Start()
	default:
		u.sendInline(total - headerLen)
	}
	return Taken
}

// sendInline sends what arrives at once, up to a bound, and leaves the rest to the pump.
func (u *Upload) sendInline(total int) {
	a := u.a
	until := a.Host.Clock.Now().Add(InlineWait)
	if a.options.Interactive {
		until = a.Host.Clock.Now() // the client may wait for a response before it sends more
	}
	for total < inlineBody {
		piece, err := a.source.Next(max(until.Sub(a.Host.Clock.Now()), time.Microsecond))
		if rawsocket.IsTimeout(err) {
			break
		}
		if err != nil && err != io.EOF {
			a.client.ClientFailed(err)
			return
		}
		end := err == io.EOF || a.source.AtEnd()
		if err := u.write(piece, end); err != nil {
			a.Progress.Store(WriteFailed)
			return
		}
		if end {
			u.sentWhole()
			return
		}
		total += len(piece)
	}
	u.Start()
}

// sendRest sends the rest of the body, or as much as the upstream accepts. It reports whether to
// watch the client afterwards.
func (u *Upload) sendRest() bool {
	src := u.a.source
	for {
		if err := u.splice(); err != nil {
			return u.restFailed(err)
		}
		piece, err := src.Next(0)
		if err != nil && err != io.EOF {
			return u.restFailed(err)
		}
		end := err == io.EOF || src.AtEnd()
		u.lastPiece.Store(end)
		if err := u.write(piece, end); err != nil {
			return u.failed()
		}
		if end {
			return u.finished()
		}
	}
}

// restFailed ends the upload because of err, and reports whether to watch the client.
func (u *Upload) restFailed(err error) bool {
	switch err {
	case ErrStopped:
	case ErrNotTaken:
		return u.failed()
	default:
		u.clientFailed(err)
	}
	return false
}

// splice moves the rest of a large body that is not kept inside the kernel (splice(2), by
// TCPConn.ReadFrom), all but its end. It moves piece by piece, so that deadlines can follow.
func (u *Upload) splice() error {
	dst := u.a.Up.TCP()
	if dst == nil || !u.a.source.CanSplice() {
		return nil
	}
	u.a.Spliced = true
	for {
		u.extendWrite()
		if more, err := u.a.source.SpliceTo(dst, u.a.WriteBy); !more {
			return err
		}
	}
}

// write writes piece and end in the framing of the body.
func (u *Upload) write(piece []byte, end bool) error {
	parts := u.appendPiece(u.vec[:0], piece, end)
	if len(parts) == 0 {
		return nil
	}
	if end {
		u.a.NoteEarly()
	}
	_, err := u.writev(parts)
	u.forget()
	return err
}

// appendPiece appends piece and end in the framing of the body.
func (u *Upload) appendPiece(parts [][]byte, piece []byte, end bool) [][]byte {
	chunked := u.a.source.Framing().Kind == http1.BodyChunked
	switch {
	case chunked && len(piece) > 0:
		size := http1.AppendChunkSize(u.sizeLine[:0], int64(len(piece)))
		parts = append(parts, size, piece, chunkEnd)
	case len(piece) > 0:
		parts = append(parts, piece)
	}
	if chunked && end {
		parts = append(parts, lastChunkWith(u.a.source.Trailers()))
	}
	return parts
}

var (
	chunkEnd  = []byte("\r\n")
	lastChunk = http1.AppendLastChunk(nil, nil)
)

// lastChunkWith returns the end of a chunked body with these trailers.
func lastChunkWith(trailers []http1.Header) []byte {
	if len(trailers) > 0 {
		return http1.AppendLastChunk(nil, trailers)
	}
	return lastChunk
}

// WholeBody returns the body, all of which is kept, in its framing.
func WholeBody(src Source) (parts [][]byte) {
	chunked := src.Framing().Kind == http1.BodyChunked
	for _, piece := range src.Kept() {
		switch {
		case len(piece) == 0:
		case chunked:
			parts = append(parts, http1.AppendChunkSize(nil, int64(len(piece))), piece, chunkEnd)
		default:
			parts = append(parts, piece)
		}
	}
	if chunked {
		parts = append(parts, lastChunkWith(src.Trailers()))
	}
	return parts
}

// writev sends the parts in one write if the system can. It shortens them to what was not
// written.
func (u *Upload) writev(parts [][]byte) (int, error) {
	u.extendWrite()
	return u.a.Up.Writev(parts)
}

func (u *Upload) extendWrite() { u.a.ExtendWrite(u.a.Host.Clock.Now(), u.a.options.BodyIdle) }

// forget drops what the last write pointed to.
func (u *Upload) forget() { clear(u.vec[:]) }

// checkDetached panics if the last write still points into b.
func (u *Upload) checkDetached(b []byte) {
	if u.running {
		return // the pump owns the vector
	}
	for _, part := range u.vec {
		MustNotPointInto(b, "what was written last", part)
	}
}
