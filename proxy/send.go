package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// The goroutine of the exchange sends a body that is small and arrives at once. The pump sends
// a larger or slower one, so that the response is read meanwhile. inlineWait bounds all waits
// for the body together.
const (
	inlineBody = largeBuffer
	inlineWait = 20 * time.Millisecond
)

// sendEnd says how far sending a request got.
type sendEnd uint8

const (
	taken    sendEnd = iota // at least a byte of it: from here on only the upstream's response tells
	notTaken                // the connection took no byte at all
	stale                   // nothing was written: the upstream had closed the connection, or spoken unasked
)

// send writes the request: the headers with the begin of the body, then the rest here or in the
// pump. It does not return a failure after the first byte, because the upstream may have
// responded before it.
func (x *exchange) send() sendEnd {
	x.body.rewind()
	expect := x.expectsContinue && x.attempts == 1 && !x.body.ready() // what is here waits for no 100
	x.upNotReusable, x.upRespondedEarly = expect || x.mayGoUnread(), false
	x.renderHead()
	headers := x.finishHead(x.requestHeaders, expect, x.trace.attempt)
	x.requestHeaders = headers[:len(x.requestHeaders)]
	parts, end, err := x.gather(headers, expect)
	switch {
	case err != nil:
		x.clientFailed(err) // known to be broken before a byte of it is sent
		return taken
	case end && x.unchecked && x.up.CanSendChecked():
		return x.sendLooking(parts)
	case x.unchecked && x.upReused && !x.up.StillOpen():
		return stale
	}
	total := length(parts)
	n, err := x.writeUp(parts)
	x.upGotBytes = n > 0
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
		x.sendInline(total - len(headers))
	}
	return taken
}

// mayGoUnread reports whether the request has a body that an upstream may not read since its method
// gives it no meaning (RFC 9110 section 9.3): it would take that body for the next request.
func (x *exchange) mayGoUnread() bool {
	if x.body.framing.Empty() || x.up.Stream() {
		return false
	}
	switch string(x.req.Method) {
	case "GET", "HEAD", "OPTIONS", "DELETE", "TRACE":
		return true
	}
	return false
}

// finishHead appends to the request headers what differs by attempt. s is the span of the
// attempt, or nil.
func (x *exchange) finishHead(headers []byte, expect bool, s AttemptSpan) []byte {
	if x.clientDeadline.Given {
		headers = x.clientDeadline.Append(headers, x.timeLeft(x.now()))
	}
	if x.clientDeadline.GRPC {
		earlier := min(x.countIn(http1.GRPCPreviousRPCAttempts), maxEarlierAttempts)
		headers = forward.AppendGRPCAttempts(headers, int(earlier)+x.attempts-1)
	}
	if s != nil {
		headers = x.appendTrace(headers, s)
	}
	return forward.AppendAttempt(headers, x.earlierAttempts+x.attempts, expect)
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
func (x *exchange) requestIsBuffered() bool {
	b := &x.body
	if b.framing.Kind == http1.BodyNone || b.ended && b.keeping && b.keptLen <= inlineBody {
		return true
	}
	return b.keeping && !b.started && b.framing.Kind == http1.BodyLength && int64(x.c.w-x.c.r) >= b.left && b.left <= inlineBody
}

// sendLooking sends a complete request and waits a short while for the first bytes of the
// response. receive finds any error in x.earlyErr.
func (x *exchange) sendLooking(parts [][]byte) sendEnd {
	if x.up.Buf == nil {
		x.up.Buf = x.spareBuffers.get(mediumBuffer)
	}
	x.extendUpWrite(x.clock)
	x.attemptSent = x.clock
	x.progress.Store(sent)
	x.setUpRead(x.untilHedge(x.readUntil(x.attemptSent, 0, sent)), x.clock)
	n, got, err := x.up.SendChecked(parts, x.up.Buf)
	x.upW, x.upGotBytes = got, n > 0
	switch {
	case err == nil && length(parts) == 0: // receive goes on with what came
	case err == upstream.ErrStale:
		return stale
	case n == 0 && isTimeout(err):
		return x.sendLate(parts)
	case n == 0 && err != nil:
		return notTaken
	case length(parts) > 0: // what was taken is cut off
		if _, err := x.up.Writev(parts); err != nil {
			x.progress.Store(writeFailed)
		}
	case isTimeout(err) && x.hedgeDue(): // receive goes on with it
	case isTimeout(err):
		x.startWatch(nil)
	default:
		x.earlyErr = err
	}
	return taken
}

// sendLate sends a request whose wait for the first bytes of the response was over before
// anything was sent, because the process had no processor for that long.
func (x *exchange) sendLate(parts [][]byte) sendEnd {
	if x.upReused && !x.up.StillOpen() {
		return stale
	}
	n, err := x.up.Writev(parts)
	x.upGotBytes = n > 0
	switch {
	case n == 0 && err != nil:
		return notTaken
	case err != nil:
		x.progress.Store(writeFailed)
	}
	return taken
}

// sentWhole records that the whole request was sent.
func (x *exchange) sentWhole() {
	x.attemptSent = x.now()
	x.progress.Store(sent)
}

// gather returns the headers with what is there of the body, and whether that is all of it. It
// never waits for more: the first bytes of a slow body are sent at once.
func (x *exchange) gather(headers []byte, expect bool) (parts [][]byte, end bool, err error) {
	b := &x.body
	parts = append(x.vec[:0], headers)
	if b.framing.Kind == http1.BodyChunked {
		return x.gatherChunk(parts, expect)
	}
	for total := 0; !b.atEnd(); {
		if expect || total >= inlineBody || len(parts) == cap(parts) || len(parts) > 1 && !b.keeping {
			return parts, false, nil // what is not kept is valid only until more is read
		}
		piece, err := b.nextNow()
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
func (x *exchange) gatherChunk(parts [][]byte, expect bool) (_ [][]byte, end bool, err error) {
	b := &x.body
	if expect || !b.ready() {
		return parts, false, nil
	}
	piece, err := b.next(inlineWait)
	if err == io.EOF || isTimeout(err) {
		err = nil
	}
	end = b.atEnd()
	return x.appendPiece(parts, piece, end), end, err
}

// sendInline sends what arrives at once, up to a bound, and leaves the rest to the pump.
func (x *exchange) sendInline(total int) {
	until := x.now().Add(inlineWait)
	if x.grpc {
		until = x.now() // what more comes may wait for a response
	}
	for total < inlineBody {
		piece, err := x.body.next(max(until.Sub(x.now()), time.Microsecond))
		if isTimeout(err) {
			break
		}
		if err != nil && err != io.EOF {
			x.clientFailed(err)
			return
		}
		end := err == io.EOF || x.body.atEnd()
		if _, err := x.writeRequest(piece, end); err != nil {
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

// writeRequest writes piece and end in the framing of the body.
func (x *exchange) writeRequest(piece []byte, end bool) (int, error) {
	parts := x.appendPiece(x.vec[:0], piece, end)
	if len(parts) == 0 {
		return 0, nil
	}
	if end {
		x.noteEarly()
	}
	return x.writeUp(parts)
}

// noteEarly records whether a response arrived before the last bytes of its request were sent.
func (x *exchange) noteEarly() {
	x.upRespondedEarly = x.up.CanSendChecked() && !x.up.StillOpen()
}

// appendPiece appends piece and end in the framing of the body.
func (x *exchange) appendPiece(parts [][]byte, piece []byte, end bool) [][]byte {
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
	return parts
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

// continueClient sends 100 Continue to a client that still waits for it, because a retry carries
// no expectation.
func (x *exchange) continueClient() {
	if x.expectsContinue {
		x.expectsContinue = false
		if x.c.write(continueLine, x.now()) != nil {
			x.clientEnd.Store(clientGone)
		}
	}
}

var continueLine = []byte("HTTP/1.1 100 Continue\r\n\r\n")

// finishBody reads the rest of the request body and keeps it, as far as it arrives before until;
// zero means without a limit.
func (x *exchange) finishBody(until instant) {
	x.continueClient()
	if err := x.body.finish(until); err != nil {
		x.clientFailed(err)
	}
}

// clientFailed records why the client's side ended and wakes whoever waits for the upstream. It
// is called by the pump, or by the exchange while no pump runs.
func (x *exchange) clientFailed(err error) {
	end := clientGone
	x.bodyRefusal = http1.RefusalNone
	var refused *http1.Error
	switch {
	case errors.As(err, &refused):
		end, x.bodyRefusal = clientBodyBroken, refused.Reason
	case errors.Is(err, errBodyCut):
		end = clientBodyBroken
	case errors.Is(err, errBodyTooLarge):
		end, x.bodyRefusal = clientBodyTooLarge, http1.RefusalBodyTooLarge
	case errors.Is(err, errBodyTooSlow):
		end = clientTooSlow
	}
	x.clientEnd.Store(end)
	x.wakeUpstream()
}
