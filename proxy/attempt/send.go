package attempt

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// The goroutine that makes the attempt sends a body that is small and arrives at once. The pump sends a
// larger or slower one, so that the response is read at the same time. InlineWait bounds the sum
// of all waits for the body.
const (
	inlineBody = buffer.Large
	InlineWait = 20 * time.Millisecond
)

// sendEnd is how far sending a request got.
type sendEnd uint8

const (
	taken    sendEnd = iota // the upstream got at least a byte: only its response tells the rest
	notTaken                // the connection took no byte
	stale                   // nothing was written: the upstream had closed the connection or sent stray bytes
)

// request sends the request, or the part of it that has arrived.
func (u *upload) request() sendEnd {
	a, src := u.a, u.a.source()
	src.Rewind()
	expect := a.options.Expect && !src.Ready() // a body that is here does not wait for a 100
	u.notReusable, u.respondedEarly = expect || u.mayGoUnread(), false
	head := a.owner().RequestHeaders(a, u.up().Form(), u.up().Host(), expect)
	parts, end, err := u.gather(head.Fields, expect)
	switch {
	case err != nil:
		a.client().ClientFailed(err) // the body is broken before a byte of it is sent
		return taken
	case end && a.unchecked && a.conn.up.CanSendChecked():
		return u.sendChecked(parts)
	}
	return u.send(&head, parts, expect, end)
}

// mayGoUnread reports whether the request has a body that an upstream may leave unread, because
// its method gives the body no meaning (RFC 9110 section 9.3). Such an upstream would parse the
// body as the next request.
func (u *upload) mayGoUnread() bool {
	if u.a.source().Framing().Empty() || u.up().Stream() {
		return false
	}
	switch string(u.a.client().Method()) {
	case "GET", "HEAD", "OPTIONS", "DELETE", "TRACE":
		return true
	}
	return false
}

// bodyWanted is called when the upstream has asked for the body by a 100, so that it reads the body.
func (u *upload) bodyWanted() { u.notReusable = u.mayGoUnread() }

// cutOff stops sending a body that is no longer needed. The rest of it could arrive after the response.
func (u *upload) cutOff() {
	u.notReusable = true
	u.stop()
}

// endedInOrder reports whether the connection can carry another request, as far as this one goes.
func (u *upload) endedInOrder() bool { return u.a.IsSent() && !u.notReusable && !u.respondedEarly }

// gather returns the headers with the part of the body that has arrived. end reports whether that
// is all of it. It does not wait for more: the first bytes of a slow body are sent at once.
func (u *upload) gather(headers []byte, expect bool) (parts [][]byte, end bool, err error) {
	src := u.a.source()
	parts = append(u.vec[:0], headers)
	if src.Framing().HasTrailers() {
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

// gatherChunk does what gather does for a chunked body, of which one piece is sent with the
// headers.
func (u *upload) gatherChunk(parts [][]byte, expect bool) (_ [][]byte, end bool, err error) {
	src := u.a.source()
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

// send writes the parts of the request, whose headers are the first one. The rest of its body is
// sent here or by the pump; if expect is set, by the pump. It does not return a failure after the first
// byte, because the upstream may have responded before the failure.
func (u *upload) send(head *wire.Head, parts [][]byte, expect, end bool) sendEnd {
	a := u.a
	if a.unchecked && a.reused && !a.conn.up.StillOpen() {
		u.forget()
		return stale
	}
	ofBody := length(parts[1:])
	u.extendWrite()
	n, err := u.up().Begin(head, parts, end, u.trailersAt(end))
	a.got(n)
	u.forget()
	switch {
	case n == 0 && err != nil:
		return notTaken
	case err != nil:
		a.progress.Store(writeFailed)
	case end:
		u.sentWhole()
	case expect:
		u.start()
	default:
		u.sendInline(ofBody)
	}
	return taken
}

// sendChecked sends a complete request, if the connection is still open, and waits a short while for the
// first bytes of the response. Reading the headers finds an error that came after the request was sent.
func (u *upload) sendChecked(parts [][]byte) sendEnd {
	a, now := u.a, u.a.client().LastTick()
	defer u.forget()
	a.conn.needBuffer()
	a.conn.extendWrite(now, a.options.BodyIdle)
	a.sentWholeAt(now)
	a.setRead(a.untilHedge(a.readUntil(now, 0, sent)), now, now)
	n, err := a.conn.sendChecked(parts)
	a.got(n)
	left := length(parts)
	switch {
	case err == nil && left == 0: // reading continues with the bytes that arrived
	case err == upstream.ErrStale:
		return stale
	case n == 0 && rawsocket.IsTimeout(err):
		return u.sendLate(parts)
	case n == 0 && err != nil:
		return notTaken
	case left > 0: // the upstream took a part: what it took is cut off
		if _, err := a.conn.up.SendBody(parts, true, nil); err != nil {
			a.progress.Store(writeFailed)
		}
	case rawsocket.IsTimeout(err) && a.hedgeDue(): // reading sends the hedge
	case rawsocket.IsTimeout(err):
		a.watchLate(now)
	default:
		a.conn.failedEarly(err)
	}
	return taken
}

func length(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// sendLate sends a request if the wait for its response ended before anything was sent, because
// the process did not run for that long.
func (u *upload) sendLate(parts [][]byte) sendEnd {
	a := u.a
	if a.reused && !a.conn.up.StillOpen() {
		return stale
	}
	n, err := a.conn.up.SendBody(parts, true, nil)
	a.got(n)
	switch {
	case n == 0 && err != nil:
		return notTaken
	case err != nil:
		a.progress.Store(writeFailed)
	}
	return taken
}

// sendInline sends what arrives at once, up to a bound, and leaves the rest to the pump.
func (u *upload) sendInline(total int) {
	a := u.a
	until := a.now().Add(InlineWait)
	if a.options.Interactive {
		until = a.now() // the client may wait for a response before it sends more
	}
	for total < inlineBody {
		piece, err := a.source().Next(max(until.Sub(a.now()), time.Microsecond))
		if rawsocket.IsTimeout(err) {
			break
		}
		if err != nil && err != io.EOF {
			a.client().ClientFailed(err)
			return
		}
		end := err == io.EOF || a.source().AtEnd()
		if err := u.write(piece, end); err != nil {
			a.progress.Store(writeFailed)
			return
		}
		if end {
			u.sentWhole()
			return
		}
		total += len(piece)
	}
	u.start()
}

// sendRest sends the rest of the body, or as much as the upstream accepts. It reports whether to
// watch the client afterwards.
func (u *upload) sendRest() bool {
	src := u.a.source()
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
func (u *upload) restFailed(err error) bool {
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
func (u *upload) splice() error {
	dst := u.up().TCP()
	if dst == nil || !u.a.source().CanSplice() {
		return nil
	}
	u.spliced = true
	for {
		u.extendWrite()
		if more, err := u.a.source().SpliceTo(dst, u.a.conn.writeBy()); !more {
			return err
		}
	}
}

// write writes piece and end in the framing of the body.
func (u *upload) write(piece []byte, end bool) error {
	parts := u.appendPiece(u.vec[:0], piece, end)
	if end {
		u.respondedEarly = u.up().CanSendChecked() && !u.up().StillOpen()
	}
	u.extendWrite()
	_, err := u.up().SendBody(parts, end, u.trailersAt(end))
	u.forget()
	return err
}

// trailersAt returns the trailers of the body at its end. In chunks they are a part of it.
func (u *upload) trailersAt(end bool) []http1.Header {
	if !end || u.up().Form() == wire.Lines {
		return nil
	}
	return u.a.source().Trailers()
}

// appendPiece appends piece and end in the framing that the body has on the connection.
func (u *upload) appendPiece(parts [][]byte, piece []byte, end bool) [][]byte {
	chunked := u.a.source().Framing().HasTrailers() && u.up().Form() == wire.Lines
	switch {
	case chunked && len(piece) > 0:
		size := http1.AppendChunkSize(u.sizeLine[:0], int64(len(piece)))
		parts = append(parts, size, piece, chunkEnd)
	case len(piece) > 0:
		parts = append(parts, piece)
	}
	if chunked && end {
		parts = append(parts, lastChunkWith(u.a.source().Trailers()))
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

// framed returns a body, all of which is kept, in the framing that it has in HTTP/1.1.
func framed(src Source) (parts [][]byte) {
	chunked := src.Framing().HasTrailers()
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

func (u *upload) extendWrite() { u.a.conn.extendWrite(u.a.now(), u.a.options.BodyIdle) }

// forget drops what the last write pointed to.
func (u *upload) forget() { clear(u.vec[:]) }

// checkDetached panics if the last write still points into b.
func (u *upload) checkDetached(b []byte) {
	if u.running {
		return // the pump owns the vector
	}
	for _, part := range u.vec {
		buffer.MustNotPointInto(b, "what was written last", part)
	}
}
