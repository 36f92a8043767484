package upload

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
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
	return b.Keeping && !b.Started && b.Framing.Kind == http1.BodyLength && int64(u.r.Conn.Buffered()) >= b.Left && b.Left <= inlineBody
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
		if err := u.write(piece, end); err != nil {
			u.att.Progress.Store(attempt.WriteFailed)
			return
		}
		if end {
			u.BodyCame()
			u.att.SentWhole()
			return
		}
		total += len(piece)
	}
	u.Start()
}

// write writes piece and end in the framing of the body.
func (u *Upload) write(piece []byte, end bool) error {
	parts := u.appendPiece(u.vec[:0], piece, end)
	if len(parts) == 0 {
		return nil
	}
	if end {
		u.att.NoteEarly()
	}
	_, err := u.WriteUp(parts)
	return err
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

// sendRest sends the rest of the body, or as much as the upstream accepts. It reports whether to
// watch the client afterwards.
func (u *Upload) sendRest() bool {
	for {
		u.pieces.Add(1)
		if u.canSplice() {
			if more, watch := u.spliceBody(); !more {
				return watch
			}
		}
		piece, err := u.r.Body.Next(0)
		if err == request.ErrStopped {
			return false
		}
		if err != nil && err != io.EOF {
			u.ClientFailed(err)
			return false
		}
		end := err == io.EOF || u.r.Body.AtEnd()
		u.lastPiece.Store(end)
		if err := u.write(piece, end); err != nil {
			return u.failed()
		}
		if end {
			return u.finished()
		}
	}
}

// A large body that is not kept moves inside the kernel (splice(2), by TCPConn.ReadFrom). It moves
// piece by piece, so that deadlines can follow. One piece within the body idle timeout of 60 s is
// the slowest rate allowed for a peer: 4.3 KiB/s.
const (
	// spliceTail is the end of a body, which is read and written. So it is known when its last
	// bytes are here: the response may be whole before they are sent.
	spliceTail = 4 << 10
	// longPiece is how long a piece takes at least before it is checked who was slow. If bytes of the
	// client wait then, it was the upstream.
	longPiece = time.Second
)

// canSplice reports whether the rest of the body has a length and is not kept, and the system can
// splice.
func (u *Upload) canSplice() bool {
	b := &u.r.Body
	return b.Framing.Kind == http1.BodyLength && !b.Keeping && b.Left >= attempt.SpliceFrom && b.Cursor >= len(b.Kept) &&
		u.r.Conn.Buffered() == 0 && u.r.Conn.TCP != nil && u.att.Up.TCP() != nil && rawsocket.CanSplice()
}

// spliceBody does what sendRest does, inside the kernel, for all of the body but its end. If more
// is false, watch reports whether to watch the client.
func (u *Upload) spliceBody() (more, watch bool) {
	b, c := &u.r.Body, u.r.Conn
	u.att.Spliced = true
	if !b.Started {
		b.Started, b.Began = true, u.r.Time.Now()
	}
	for b.Left > spliceTail {
		began := u.r.Time.Now()
		until := b.ReadDeadline(began, began)
		c.SetRead(until, time.Second)
		if u.Pump.Stopping.Load() {
			return false, false
		}
		if c.IsTurnedAway() {
			u.ClientFailed(request.ErrTurnedAway)
			return false, false
		}
		u.att.ExtendWrite(began, u.r.Time.BodyIdle())
		u.pieces.Add(1)
		want := min(b.Left-spliceTail, attempt.SplicePiece)
		n, err := u.splicer.Move(u.att.Up.TCP(), c.TCP, want)
		b.Total += n
		b.Left -= n
		if took := u.r.Time.Now().Sub(began); took < longPiece || !c.HasUnread() {
			b.WaitedForClient(took)
		}
		if n < want {
			if again, watch := u.spliceEnded(n, err, until); !again {
				return false, watch
			}
		}
	}
	return true, false
}

// spliceEnded determines whose side ended a splice early, because the error does not show it.
// again reports whether the splice can continue, watch whether to watch the client. After the
// upstream's side ended it cannot continue: what was in the kernel's pipe is lost.
func (u *Upload) spliceEnded(n int64, err error, until clock.Instant) (again, watch bool) {
	now := u.r.Time.Now()
	switch {
	case u.Pump.Stopping.Load():
	case err == nil || err == io.EOF:
		u.ClientFailed(request.ErrBodyCut)
	case rawsocket.IsTimeout(err) && !u.att.WriteBy.IsZero() && !now.Before(u.att.WriteBy):
		return false, u.failed()
	case rawsocket.IsTimeout(err) && u.r.Conn.IsTurnedAway():
		u.ClientFailed(request.ErrTurnedAway)
	case rawsocket.IsTimeout(err) && !now.Before(until):
		if n > 0 {
			return true, false
		}
		u.ClientFailed(request.ErrBodyTooSlow)
	case u.r.Conn.HungUp():
		u.ClientFailed(attempt.ErrClientGone)
	case rawsocket.IsTimeout(err):
		u.r.Conn.ReadMoved() // a late wake-up for an earlier wait; the pipe is empty while a read waits
		return true, false
	default:
		return false, u.failed()
	}
	return false, false
}
