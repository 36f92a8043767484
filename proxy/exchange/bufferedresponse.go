package exchange

import (
	"bytes"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
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
	s           *sender // which made the attempt
	resp        http1.Response
	framing     http1.Framing
	headerBuf   []byte // the buffer with resp's spans
	headerStart int32  // the head in it
	headerEnd   int32
	attempt     int32 // the number of the attempt that brought it
	full        bool
	compacted   bool // for a wait
	cut         bool // the upstream cut it off, so the client's copy is cut off too
	body        []byte
	chunked     http1.Chunked
	charged     int
}

// read reads the response of the attempt that just ended to its end, and keeps it in place of an
// older one. If it returns a reason, the response cannot be kept; it can still be relayed from its
// first byte.
func (h *bufferedResponse) read() policy.Reason {
	h.drop()
	limit := h.s.r.Route.ResponseBufferBytes
	if f := h.s.att.Body.Framing; f.Kind == http1.BodyLength && f.Length > limit {
		return policy.ReasonResponseTooLarge
	}
	if h.s.att.R > len(h.s.att.Up.Buf)-minBodyRoom {
		return policy.ReasonResponseTooLarge // its head alone fills the buffer
	}
	if !h.charge(cap(h.s.att.Up.Buf) + cap(h.s.att.Body.Prefix)) {
		return policy.ReasonRetryBufferFull
	}
	h.body, h.s.att.Body.Prefix = h.s.att.Body.Prefix, nil // what was read of it to find out its status
	if why := h.readBody(limit); why != policy.ReasonNone {
		h.s.att.Body.Prefix = h.body
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
	if res == nil || res.Cause != policy.CauseStatus || h.full && h.attempt == int32(h.s.r.Attempts) {
		return true
	}
	return h.read() == policy.ReasonNone
}

// readBody reads the body.
func (h *bufferedResponse) readBody(limit int64) policy.Reason {
	h.s.att.Body.KeepBelow = h.s.att.R // the head stays where it is
	until := h.s.r.Time.Now().Add(responseBufferTimeout)
	for {
		piece, err := h.s.att.Body.NextBefore(until)
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
	if n > 0 && !h.s.r.Process.RetryBuffer.Take(n) {
		return false
	}
	h.charged += n
	return true
}

func (h *bufferedResponse) releaseCharge() {
	h.s.r.Process.RetryBuffer.Give(h.charged)
	h.charged = 0
}

// keep takes the buffer with the headers from the connection, which goes back to the pool.
func (h *bufferedResponse) keep() {
	h.full, h.attempt = true, int32(h.s.r.Attempts)
	h.framing = h.s.att.Body.Framing
	h.resp, h.s.att.Resp = h.s.att.Resp, h.resp
	h.headerBuf, h.s.att.Up.Buf = h.s.att.Up.Buf, nil
	h.headerStart, h.headerEnd, h.compacted = h.s.att.HeaderStart, h.s.att.HeaderEnd, false
	h.s.att.Resp.Close, h.s.att.Resp.KeepAliveTimeout = h.resp.Close || h.cut, h.resp.KeepAliveTimeout
	if h.framing.Kind == http1.BodyChunked {
		h.chunked, h.s.att.Body.Chunked = h.s.att.Body.Chunked, h.chunked
	}
	h.s.endRequest()
	h.s.upload.Stop()
	h.s.att.Release(h.s.r.Time.Tick())
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

// compact moves what is kept out of the buffers that it was read into. Its headers are parsed again when they are
// needed.
func (h *bufferedResponse) compact() {
	if !h.full || h.compacted {
		return
	}
	h.compacted = true
	before := cap(h.headerBuf) + cap(h.body)
	headers := bytes.Clone(h.headerBuf[h.headerStart:h.headerEnd])
	body := bytes.Clone(h.body)
	h.releaseHeaders()
	h.headerBuf, h.body = headers, body
	saved := before - cap(headers) - cap(body)
	h.s.r.Process.RetryBuffer.Give(saved)
	h.charged -= saved
}

// restoreHeaders undoes what compact did to the headers.
func (h *bufferedResponse) restoreHeaders() {
	if h.compacted {
		_, _ = h.resp.Parse(h.headerBuf, h.s.r.Settings.Limits, h.s.r.HTTP.Method)
	}
}

// readError takes what the response, whose result is a, says about a retry in its body: a wait, which
// counts if it is longer than that of the headers, or that an account is used up. It returns the
// reason if there is to be no retry.
func (h *bufferedResponse) readError(a *policy.Attempt, began *heldStream) policy.Reason {
	body := h.errorObject(began)
	if a.Cause != policy.CauseStatus || a.Status < 400 || len(body) == 0 {
		return policy.ReasonNone
	}
	list := h.s.r.Route.ErrorCodes
	if list == nil {
		list = apierror.Usual()
	}
	v := list.Read(body)
	switch {
	case v.Exhausted:
		return policy.ReasonQuotaExhausted
	case !v.HasWait || a.HasRetryAfter && a.RetryAfter >= v.Wait:
		return policy.ReasonNone
	}
	a.RetryAfter, a.HasRetryAfter = v.Wait, true
	h.s.r.StartPause(a)
	if h.s.r.PauseTooLong(a) {
		return policy.ReasonRetryAfterTooLong
	}
	return policy.ReasonNone
}

// errorObject returns the JSON text of the response: its body, or the error that an event
// stream began with. It returns nil if the response has none.
func (h *bufferedResponse) errorObject(began *heldStream) []byte {
	switch {
	case began.failed:
		return began.reader.Error(h.body)
	case isPlainJSON(&h.resp):
		return h.body
	}
	return nil
}

// isPlainJSON reports whether a response has a JSON body that is not compressed.
func isPlainJSON(r *http1.Response) bool {
	const suffix = "+json" // RFC 6839 section 3.1
	name := mediaType(r)
	return isUncompressed(r) && (http1.EqualFold(name, "application/json") ||
		len(name) > len(suffix) && http1.EqualFold(name[len(name)-len(suffix):], suffix))
}

// isUncompressed reports whether the body of a response is not encoded.
func isUncompressed(r *http1.Response) bool {
	coding := r.Get(http1.ContentEncoding)
	return len(coding) == 0 || http1.EqualFold(coding, "identity")
}

// mediaType returns the Content-Type of a response without its parameters.
func mediaType(r *http1.Response) []byte {
	name, _, _ := bytes.Cut(r.Get(http1.ContentType), []byte(";"))
	return http1.TrimOWS(name)
}
