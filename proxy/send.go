package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// A body is sent by the exchange's own goroutine while it is small and comes
// at once; a larger or slower one by the pump, so that the upstream's answer
// is read meanwhile. inlineWait bounds all waiting for it together.
const (
	inlineBody = largeBuffer
	inlineWait = 20 * time.Millisecond
)

// sendEnd is how far the sending of a request came.
type sendEnd uint8

const (
	taken    sendEnd = iota // at least a byte of it: from here on only the upstream's answer tells
	notTaken                // the connection took no byte at all
	stale                   // nothing was written: the upstream had closed the connection, or spoken unasked
)

// send writes the request: the head with the first of the body, then the rest
// here or in the pump. A failure after the first byte is not told here, since
// the upstream may have answered before it.
func (x *exchange) send() sendEnd {
	x.body.rewind()
	expect := x.expect && x.attempts == 1
	head := forward.AppendAttempt(x.head, x.earlier+x.attempts, expect)
	x.head = head[:len(x.head)]
	piece, end, err := x.firstPiece(expect)
	if err != nil {
		x.callerFailed(err) // known to be broken before a byte of it is sent
		return taken
	}
	if x.body.framing.Kind == http1.BodyNone && x.up.CanLook() {
		return x.sendLooking(head)
	}
	n, err := x.writeRequest(head, piece, end)
	x.upAsked = n > 0
	switch {
	case n == 0 && err != nil:
		return notTaken
	case err != nil:
		x.progress.Store(writeFailed)
	case end:
		x.sentWhole()
	case expect:
		x.startPump()
	default:
		x.sendInline(len(piece))
	}
	return taken
}

// sendLooking sends a request without a body and waits a short while for the
// first bytes of the answer. What else comes of it, receive finds in x.early.
func (x *exchange) sendLooking(head []byte) sendEnd {
	if x.up.Buf == nil {
		x.up.Buf = getBuffer(mediumBuffer)
	}
	x.extendUpWrite()
	x.sentWhole()
	x.setUpRead(x.readUntil(x.attemptSent, 0, sent))
	n, got, err := x.up.SendLooking(head, x.up.Buf)
	x.upW, x.upAsked = got, n > 0
	switch {
	case err == upstream.ErrStale:
		return stale
	case n == 0 && err != nil:
		return notTaken
	case n < len(head):
		if _, err := x.up.Write(head[n:]); err != nil {
			x.progress.Store(writeFailed)
		}
	case isTimeout(err):
		x.startWatch(nil)
	default:
		x.early = err
	}
	return taken
}

// sentWhole notes that the upstream has the whole request.
func (x *exchange) sentWhole() {
	x.attemptSent = time.Now()
	x.progress.Store(sent)
}

// firstPiece gives what of the body can go with the head without a wait, and
// whether that is all of it.
func (x *exchange) firstPiece(expect bool) (piece []byte, end bool, err error) {
	b := &x.body
	if b.atEnd() {
		return nil, true, nil
	}
	if expect || !b.ready() {
		return nil, false, nil
	}
	piece, err = b.next(inlineWait)
	if err == io.EOF || isTimeout(err) {
		err = nil
	}
	return piece, b.atEnd(), err
}

// sendInline sends what comes at once, up to a bound, then leaves the rest to
// the pump.
func (x *exchange) sendInline(total int) {
	until := time.Now().Add(inlineWait)
	for total < inlineBody {
		piece, err := x.body.next(max(time.Until(until), time.Microsecond))
		if isTimeout(err) {
			break
		}
		if err != nil && err != io.EOF {
			x.callerFailed(err)
			return
		}
		end := err == io.EOF || x.body.atEnd()
		if _, err := x.writeRequest(nil, piece, end); err != nil {
			x.progress.Store(writeFailed)
			return
		}
		if end {
			x.sentWhole()
			return
		}
		total += len(piece)
	}
	x.startPump()
}

// writeRequest writes head, piece and end in the framing of the body.
func (x *exchange) writeRequest(head, piece []byte, end bool) (int, error) {
	parts := x.vec[:0]
	if len(head) > 0 {
		parts = append(parts, head)
	}
	chunked := x.body.framing.Kind == http1.BodyChunked
	switch {
	case chunked && len(piece) > 0:
		size := http1.AppendChunkSize(x.sizeLine[:0], int64(len(piece)))
		parts = append(parts, size, piece, chunkEnd)
	case len(piece) > 0:
		parts = append(parts, piece)
	}
	if chunked && end {
		parts = append(parts, x.lastChunk())
	}
	if len(parts) == 0 {
		return 0, nil
	}
	return x.writeUp(parts)
}

var (
	chunkEnd  = []byte("\r\n")
	lastChunk = http1.AppendLastChunk(nil, nil)
)

func (x *exchange) lastChunk() []byte {
	if trailers := x.body.chunked.Trailers(); len(trailers) > 0 {
		return http1.AppendLastChunk(nil, trailers)
	}
	return lastChunk
}

// continueCaller answers a caller that still waits for a 100, since a repeat
// carries no expectation any more.
func (x *exchange) continueCaller() {
	if x.expect {
		x.expect = false
		if x.c.write(continueLine) != nil {
			x.callerEnd.Store(callerGone)
		}
	}
}

var continueLine = []byte("HTTP/1.1 100 Continue\r\n\r\n")

// finishBody reads the rest of the caller's body, only to keep it.
func (x *exchange) finishBody() {
	x.continueCaller()
	if err := x.body.finish(); err != nil {
		x.callerFailed(err)
	}
}

// callerFailed notes why the caller's side ended and wakes whoever waits for
// the upstream. Called by the pump, or by the exchange while none runs.
func (x *exchange) callerFailed(err error) {
	end := callerGone
	x.bodyWrong = http1.RefusalNone
	var refused *http1.Error
	switch {
	case errors.As(err, &refused):
		end, x.bodyWrong = callerBroken, refused.Reason
	case errors.Is(err, errBodyCut):
		end = callerBroken
	case errors.Is(err, errBodyTooLarge):
		end, x.bodyWrong = callerTooLarge, http1.RefusalBodyTooLarge
	case errors.Is(err, errBodyTooSlow):
		end = callerTooSlow
	}
	x.callerEnd.Store(end)
	x.wakeUpstream()
}
