package exchange

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// responseBufferTimeout bounds how long the body of a failed response may take before the response
// is relayed instead of buffered. A retry that starts later helps nobody.
const responseBufferTimeout = time.Second

// minBodyRoom is the least room behind buffered headers for reading the body.
const minBodyRoom = 512

// bufferedResponse is a failed response that is kept whole while a better one is sought. Its bytes
// are charged to the retry buffer.
type bufferedResponse struct {
	x           *Exchange
	resp        http1.Response
	framing     http1.Framing
	headerBuf   []byte // the buffer with resp's spans
	headerStart int32  // the head in it
	headerEnd   int32
	full        bool
	compacted   bool // for a wait
	body        []byte
	attempt     int32 // the number of the attempt that brought it
	cut         bool  // the upstream cut it off, so the client's copy is cut off too
	chunked     http1.Chunked
	charged     int
}

// read reads the response of the attempt that just ended to its end, and keeps it in place of an
// older one. If it returns a reason, the response cannot be kept; it can still be relayed from its
// first byte.
func (h *bufferedResponse) read() policy.Reason {
	x := h.x
	h.drop()
	limit := x.Route.ResponseBufferBytes
	if f := x.att.Body.Framing; f.Kind == http1.BodyLength && f.Length > limit {
		return policy.ReasonResponseTooLarge
	}
	if x.att.R > len(x.att.Up.Buf)-minBodyRoom {
		return policy.ReasonResponseTooLarge // its head alone fills the buffer
	}
	if !h.charge(cap(x.att.Up.Buf) + cap(x.att.Body.Prefix)) {
		return policy.ReasonRetryBufferFull
	}
	h.body, x.att.Body.Prefix = x.att.Body.Prefix, nil // what was read of it to find out its status
	if why := h.readBody(limit); why != policy.ReasonNone {
		x.att.Body.Prefix = h.body
		h.body = nil
		h.releaseCharge()
		return why
	}
	h.keep()
	return policy.ReasonNone
}

// readLast keeps the response of the last attempt, whose result is res, until the fallback has a
// better one. It reports false if it cannot be kept. A nil res means that there was no attempt.
func (h *bufferedResponse) readLast(res *policy.Attempt) bool {
	if res == nil || res.Cause != policy.CauseStatus || h.full && h.attempt == int32(h.x.Attempts) {
		return true
	}
	return h.read() == policy.ReasonNone
}

// readBody reads the body.
func (h *bufferedResponse) readBody(limit int64) policy.Reason {
	x := h.x
	x.att.Body.KeepBelow = x.att.R // the head stays where it is
	until := x.Now().Add(responseBufferTimeout)
	for {
		piece, err := x.att.Body.NextBefore(until)
		switch {
		case err == io.EOF:
			return policy.ReasonNone
		case err == attempt.ErrCut:
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

// appendBody appends a piece and charges the growth of the buffer.
func (h *bufferedResponse) appendBody(piece []byte) bool {
	before := cap(h.body)
	h.body = buffer.Grow(h.body, len(piece))
	h.body = append(h.body, piece...)
	return h.charge(cap(h.body) - before)
}

func (h *bufferedResponse) charge(n int) bool {
	if n > 0 && !h.x.Process.RetryBuffer.Take(n) {
		return false
	}
	h.charged += n
	return true
}

func (h *bufferedResponse) releaseCharge() {
	h.x.Process.RetryBuffer.Give(h.charged)
	h.charged = 0
}

// keep takes the buffer with the headers from the connection, which goes back to the pool.
func (h *bufferedResponse) keep() {
	x := h.x
	h.full, h.attempt = true, int32(x.Attempts)
	h.framing = x.att.Body.Framing
	h.resp, x.att.Resp = x.att.Resp, h.resp
	h.headerBuf, x.att.Up.Buf = x.att.Up.Buf, nil
	h.headerStart, h.headerEnd, h.compacted = x.att.HeaderStart, x.att.HeaderEnd, false
	x.att.Resp.Close, x.att.Resp.KeepAliveTimeout = h.resp.Close || h.cut, h.resp.KeepAliveTimeout
	if h.framing.Kind == http1.BodyChunked {
		h.chunked, x.att.Body.Chunked = x.att.Body.Chunked, h.chunked
	}
	x.endRequest()
	x.upload.stop()
	x.att.Release(x.Tick())
}

// drop forgets the buffered response, if there is one, and returns its memory.
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

// relayBuffered sends the buffered response to the client as it came.
func (x *Exchange) relayBuffered(o policy.Outcome, reason string) (int, policy.Outcome) {
	h := &x.buffered
	h.restoreHeaders()
	x.att.Resp, h.resp = h.resp, x.att.Resp
	x.endIfUnread()
	if x.notGRPC() {
		return x.respondNotGRPC(o)
	}
	f := x.w.framing(h.framing)
	x.w.buf = x.w.appendHeaders(x.w.clean(), &x.att.Resp, f, reason)
	x.w.started = true
	err := x.w.writePiece(f, h.body)
	if err == nil && h.cut {
		_ = x.w.flush()
		return x.broken(x.att.Resp.Status, f, attempt.ErrCut)
	}
	if err == nil {
		x.att.Body.Framing, x.att.Body.Chunked = h.framing, h.chunked
		err = x.w.endBody(f, x.att.Body.Trailers())
	}
	if err != nil {
		return x.broken(x.att.Resp.Status, f, err)
	}
	return x.att.Resp.Status, o
}
