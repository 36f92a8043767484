package exchange

import (
	"errors"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// The goroutine of the exchange sends a body that is small and arrives at once. The pump sends
// a larger or slower one, so that the response is read meanwhile. inlineWait bounds all waits
// for the body together.
const (
	inlineBody = buffer.Large
	InlineWait = 20 * time.Millisecond
)

// send writes the request: the headers with the begin of the body, then the rest here or in the
// pump. It does not return a failure after the first byte, because the upstream may have
// responded before it.
func (x *Exchange) send() attempt.SendEnd {
	x.Body.Rewind()
	expect := x.ExpectsContinue && x.att.Number == 1 && !x.Body.Ready() // what is here waits for no 100
	x.att.NotReusable, x.att.RespondedEarly = expect || x.mayGoUnread(), false
	x.RenderHeaders()
	headers := x.FinishHeaders(x.RequestHeaders, expect, x.att)
	x.RequestHeaders = headers[:len(x.RequestHeaders)]
	parts, end, err := x.upload.gather(headers, expect)
	switch {
	case err != nil:
		x.upload.clientFailed(err) // known to be broken before a byte of it is sent
		return attempt.Taken
	case end && x.att.Unchecked && x.att.Up.CanSendChecked():
		return x.sendLooking(parts)
	case x.att.Unchecked && x.att.Reused && !x.att.Up.StillOpen():
		return attempt.Stale
	}
	total := length(parts)
	n, err := x.upload.writeUp(parts)
	x.att.GotBytes = n > 0
	switch {
	case n == 0 && err != nil:
		return attempt.NotTaken
	case err != nil:
		x.att.Progress.Store(attempt.WriteFailed)
	case end:
		x.att.SentWhole()
	case expect:
		x.upload.start()
	default:
		x.upload.sendInline(total - len(headers))
	}
	return attempt.Taken
}

// mayGoUnread reports whether the request has a body that an upstream may not read since its method
// gives it no meaning (RFC 9110 section 9.3): it would take that body for the next request.
func (s *sender) mayGoUnread() bool {
	if s.r.Body.Framing.Empty() || s.att.Up.Stream() {
		return false
	}
	switch string(s.r.HTTP.Method) {
	case "GET", "HEAD", "OPTIONS", "DELETE", "TRACE":
		return true
	}
	return false
}

func length(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// requestIsBuffered reports whether the whole request is in memory and stays there. It can then
// be written together with the check of the connection, and again on another one if that is
// stale.
func (u *upload) isBuffered() bool {
	b := &u.r.Body
	if b.Framing.Kind == http1.BodyNone || b.Ended && b.Keeping && b.KeptLen <= inlineBody {
		return true
	}
	return b.Keeping && !b.Started && b.Framing.Kind == http1.BodyLength && int64(u.r.Conn.W-u.r.Conn.R) >= b.Left && b.Left <= inlineBody
}

// sendLooking sends a complete request and waits a short while for the first bytes of the
// response. receive finds any error in x.earlyErr.
func (x *Exchange) sendLooking(parts [][]byte) attempt.SendEnd {
	x.att.NeedBuffer()
	x.att.ExtendWrite(x.Clock, x.BodyIdle())
	x.att.SentAt = x.Clock
	x.att.Progress.Store(attempt.Sent)
	x.setUpRead(x.hedge.untilDue(x.readUntil(x.att.SentAt, 0, attempt.Sent)), x.Clock)
	n, got, err := x.att.Up.SendChecked(parts, x.att.Up.Buf)
	x.att.W, x.att.GotBytes = got, n > 0
	switch {
	case err == nil && length(parts) == 0: // receive goes on with what came
	case err == upstream.ErrStale:
		return attempt.Stale
	case n == 0 && rawsocket.IsTimeout(err):
		return x.att.SendLate(parts)
	case n == 0 && err != nil:
		return attempt.NotTaken
	case length(parts) > 0: // what was taken is cut off
		if _, err := x.att.Up.Writev(parts); err != nil {
			x.att.Progress.Store(attempt.WriteFailed)
		}
	case rawsocket.IsTimeout(err) && x.hedge.due(): // receive goes on with it
	case rawsocket.IsTimeout(err):
		x.upload.startWatch(nil)
	default:
		x.att.EarlyErr = err
	}
	return attempt.Taken
}

// gather returns the headers with what is there of the body, and whether that is all of it. It
// never waits for more: the first bytes of a slow body are sent at once.
func (u *upload) gather(headers []byte, expect bool) (parts [][]byte, end bool, err error) {
	b := &u.r.Body
	parts = append(u.vec[:0], headers)
	if b.Framing.Kind == http1.BodyChunked {
		return u.gatherChunk(parts, expect)
	}
	for total := 0; !b.AtEnd(); {
		if expect || total >= inlineBody || len(parts) == cap(parts) || len(parts) > 1 && !b.Keeping {
			return parts, false, nil // what is not kept is valid only until more is read
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

// gatherChunk is gather for a chunked body, of which one piece is sent with the headers.
func (u *upload) gatherChunk(parts [][]byte, expect bool) (_ [][]byte, end bool, err error) {
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

// sendInline sends what arrives at once, up to a bound, and leaves the rest to the pump.
func (u *upload) sendInline(total int) {
	until := u.r.Now().Add(InlineWait)
	if u.r.GRPC {
		until = u.r.Now() // what more comes may wait for a response
	}
	for total < inlineBody {
		piece, err := u.r.Body.Next(max(until.Sub(u.r.Now()), time.Microsecond))
		if rawsocket.IsTimeout(err) {
			break
		}
		if err != nil && err != io.EOF {
			u.clientFailed(err)
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
	u.start()
}

// writeRequest writes piece and end in the framing of the body.
func (u *upload) write(piece []byte, end bool) (int, error) {
	parts := u.appendPiece(u.vec[:0], piece, end)
	if len(parts) == 0 {
		return 0, nil
	}
	if end {
		u.att.NoteEarly()
	}
	return u.writeUp(parts)
}

// appendPiece appends piece and end in the framing of the body.
func (u *upload) appendPiece(parts [][]byte, piece []byte, end bool) [][]byte {
	chunked := u.r.Body.Framing.Kind == http1.BodyChunked
	switch {
	case chunked && len(piece) > 0:
		size := http1.AppendChunkSize(u.sizeLine[:0], int64(len(piece)))
		parts = append(parts, size, piece, chunkEnd)
	case len(piece) > 0:
		parts = append(parts, piece)
	}
	if chunked && end {
		parts = append(parts, u.lastChunk())
	}
	return parts
}

var (
	chunkEnd  = []byte("\r\n")
	lastChunk = http1.AppendLastChunk(nil, nil)
)

func (u *upload) lastChunk() []byte {
	if trailers := u.r.Dest.Forward.Changes.Trailers(u.r.Body.Chunked.Trailers()); len(trailers) > 0 {
		return http1.AppendLastChunk(nil, trailers)
	}
	return lastChunk
}

// finishBody reads the rest of the request body and keeps it, as far as it arrives before until;
// zero means without a limit.
func (u *upload) finishBody(until clock.Instant) {
	u.r.ContinueClient()
	if err := u.r.Body.Finish(until); err != nil {
		u.clientFailed(err)
	}
}

// clientFailed records why the client's side ended and wakes whoever waits for the upstream. It
// is called by the pump, or by the exchange while no pump runs.
func (u *upload) clientFailed(err error) {
	end := request.ClientGone
	u.r.BodyRefusal = http1.RefusalNone
	var refused *http1.Error
	switch {
	case errors.As(err, &refused):
		end, u.r.BodyRefusal = request.ClientBodyBroken, refused.Reason
	case errors.Is(err, request.ErrBodyCut):
		end = request.ClientBodyBroken
	case errors.Is(err, request.ErrBodyTooLarge):
		end, u.r.BodyRefusal = request.ClientBodyTooLarge, http1.RefusalBodyTooLarge
	case errors.Is(err, request.ErrBodyTooSlow):
		end = request.ClientTooSlow
	}
	u.r.ClientEnd.Store(end)
	u.wakeUpstream()
}
