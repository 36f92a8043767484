package proxy

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// responseBufferTimeout bounds how long a failing response's body may take to arrive before
// it is passed on instead of held: a retry that starts later than this after
// the failure helps nobody.
const responseBufferTimeout = time.Second

// minBodyRoom is the least room behind a held head for reading its body.
const minBodyRoom = 512

// bufferedResponse is a failing response kept whole while a better one is sought. Its
// bytes are charged to the retry buffer.
type bufferedResponse struct {
	x           *exchange
	full        bool
	attempt     int // the number of the attempt that brought it
	resp        http1.Response
	framing     http1.Framing
	headerBuf   []byte // the buffer with resp's spans
	headerStart int32  // the head in it
	headerEnd   int32
	compacted   bool // for a wait
	body        []byte
	cut         bool // the upstream cut it off, so the client's copy is cut off too
	chunked     http1.Chunked
	charged     int
}

// read reads the response of the attempt that just ended to its end and keeps
// it in place of an older one. A reason means that it cannot be held; it can
// then still be relayed, from its first byte.
func (h *bufferedResponse) read() policy.Reason {
	x := h.x
	h.drop()
	limit := x.route.ResponseBufferBytes
	if f := x.respBody.framing; f.Kind == http1.BodyLength && f.Length > limit {
		return policy.ReasonResponseTooLarge
	}
	if x.upR > len(x.up.Buf)-minBodyRoom {
		return policy.ReasonResponseTooLarge // its head alone fills the buffer
	}
	if !h.charge(cap(x.up.Buf) + cap(x.respBody.prefix)) {
		return policy.ReasonRetryBufferFull
	}
	h.body, x.respBody.prefix = x.respBody.prefix, nil // what was read of it to find out its status
	if why := h.readBody(limit); why != policy.ReasonNone {
		x.respBody.prefix = h.body
		h.body = nil
		h.releaseCharge()
		return why
	}
	h.keep()
	return policy.ReasonNone
}

// readBody gathers the body.
func (h *bufferedResponse) readBody(limit int64) policy.Reason {
	x := h.x
	x.respBody.keepBelow = x.upR // the head stays where it is
	until := x.now().Add(responseBufferTimeout)
	for {
		piece, err := x.respBody.next(max(until.Sub(x.now()), time.Millisecond))
		switch {
		case err == io.EOF:
			return policy.ReasonNone
		case err == errResponseCut:
			h.cut = true
			return policy.ReasonNone
		case err != nil:
			return policy.ReasonResponseTooLarge
		}
		if !h.appendBody(piece) {
			return policy.ReasonRetryBufferFull
		}
		if int64(len(h.body)) > limit {
			return policy.ReasonResponseTooLarge
		}
	}
}

// appendBody appends a piece, charging the growth of the buffer.
func (h *bufferedResponse) appendBody(piece []byte) bool {
	before := cap(h.body)
	h.body = grow(h.body, len(piece))
	h.body = append(h.body, piece...)
	return h.charge(cap(h.body) - before)
}

func (h *bufferedResponse) charge(n int) bool {
	if n > 0 && !h.x.c.server.replay.take(n) {
		return false
	}
	h.charged += n
	return true
}

func (h *bufferedResponse) releaseCharge() {
	h.x.c.server.replay.give(h.charged)
	h.charged = 0
}

// keep takes the head's buffer from the connection, which goes back to the pool.
func (h *bufferedResponse) keep() {
	x := h.x
	h.full, h.attempt = true, x.attempts
	h.framing = x.respBody.framing
	h.resp, x.resp = x.resp, h.resp
	h.headerBuf, x.up.Buf = x.up.Buf, nil
	h.headerStart, h.headerEnd, h.compacted = x.headerStart, x.headerEnd, false
	x.resp.Close, x.resp.KeepAliveTimeout = h.resp.Close || h.cut, h.resp.KeepAliveTimeout
	if h.framing.Kind == http1.BodyChunked {
		h.chunked, x.respBody.chunked = x.respBody.chunked, h.chunked
	}
	x.endRequest()
	x.stopPump()
	x.releaseUpstream(x.tick())
}

// drop forgets the response held, where there is one, and gives its memory back.
func (h *bufferedResponse) drop() {
	if h.charged > 0 { // as all that is held is
		h.forget()
	}
}

func (h *bufferedResponse) forget() {
	h.releaseCharge()
	h.releaseHeaders()
	h.full, h.cut = false, false
}

// relayBuffered gives the client the response held, as it came.
func (x *exchange) relayBuffered(o policy.Outcome, reason string) (int, policy.Outcome) {
	h := &x.buffered
	h.restoreHeaders()
	x.resp, h.resp = h.resp, x.resp
	x.endIfUnread()
	if x.notGRPC() {
		return x.respondNotGRPC(o)
	}
	f := x.clientFraming(h.framing)
	x.out = x.appendHead(x.cleanOut(), f, reason)
	x.started = true
	err := x.writePiece(f, h.body)
	if err == nil && h.cut {
		_ = x.flush()
		return x.broken(x.resp.Status, f, errResponseCut)
	}
	if err == nil {
		x.respBody.framing, x.respBody.chunked = h.framing, h.chunked
		err = x.endBody(f)
	}
	if err != nil {
		return x.broken(x.resp.Status, f, err)
	}
	return x.resp.Status, o
}
