package exchange

import (
	"bytes"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
	"github.com/retryproxy/retryproxy/policy/retryafter"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/contentcoding"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// bodyWait bounds how long the body of a failed response is read before a retry. Most error bodies
// come with the headers or a round trip later, and then the connection can serve the next attempt
// and the body can ask for a wait. The retry does not wait for the rest of a slower body.
const bodyWait = 250 * time.Millisecond

// bufferedResponse keeps the last failed response while a retry seeks a better one: whole, or, if
// its body is slow, what has come of it with the attempt that can read the rest. Its bytes are charged
// to the retry buffer.
type bufferedResponse struct {
	s        *sender       // made the attempt
	received clock.Instant // when its headers came
	attempt  int32         // the number of the attempt with this response
	full     bool          // kept has it
	failed   bool          // it is an event stream that began with an error
	charged  int

	kept attempt.Kept
	rest *attempt.Attempt // set aside with a response that was not read to its end; nil: none
}

// holds reports whether there is a response for the client that no running attempt has.
func (h *bufferedResponse) holds() bool { return h.full || h.rest != nil }

// keptOf reports whether that response is the one of the n-th attempt.
func (h *bufferedResponse) keptOf(n int) bool { return h.holds() && h.attempt == int32(n) }

// read buffers the response of the attempt that just ended, in place of an older one. A response
// that does not end within bodyWait stays in its attempt, with what has come of it; see leave. If
// read returns a reason, the response cannot be buffered. It can then still be relayed from its first
// byte, as it can while it is in its attempt.
func (h *bufferedResponse) read() policy.Reason {
	h.drop()
	h.received = h.request().Time.Clock
	b := h.s.att.Body()
	limit := h.request().Route.ResponseBufferBytes + int64(len(b.Held())) // what was held back is in memory already
	if b.Exceeds(limit) {
		return policy.ReasonResponseTooLarge
	}
	if !b.HasRoom() {
		return policy.ReasonResponseTooLarge // its headers alone fill the buffer
	}
	if !h.charge(h.s.att.ResponseMemory()) {
		return policy.ReasonRetryBufferFull
	}
	switch why, err := h.readBody(b, limit); {
	case err == io.EOF, err == attempt.ErrCut:
		h.keep(err == attempt.ErrCut)
	case why != policy.ReasonNone:
		h.releaseCharge()
		return why
	}
	return policy.ReasonNone // if it has not ended, no time is left for it, or the client left
}

// readLast buffers the response of the last attempt until the fallback has a better one. res is
// the result of that attempt; nil means that there was none. It reports false if the response
// cannot be buffered.
func (h *bufferedResponse) readLast(res *policy.Result) bool {
	if res == nil || res.Cause != policy.CauseStatus || h.keptOf(h.request().Attempts()) {
		return true
	}
	return h.read() == policy.ReasonNone
}

// readBody reads the body ahead, at most limit bytes. It returns what ended it; a reason says that it
// cannot be buffered.
func (h *bufferedResponse) readBody(b *attempt.Body, limit int64) (policy.Reason, error) {
	until := h.received.Add(bodyWait)
	for {
		grew, err := b.ReadAhead(until)
		switch {
		case err != nil:
			return policy.ReasonNone, err
		case !h.charge(grew):
			return policy.ReasonRetryBufferFull, nil
		case int64(len(b.Held())) > limit:
			return policy.ReasonResponseTooLarge, nil
		}
	}
}

func (h *bufferedResponse) request() *request.Request { return h.s.r }

// memory returns what bytes are charged to.
func (h *bufferedResponse) memory() *request.RetryBuffer { return h.request().Process.RetryBuffer }

func (h *bufferedResponse) charge(n int) bool {
	if n > 0 && !h.memory().Take(n) {
		return false
	}
	h.charged += n
	return true
}

func (h *bufferedResponse) releaseCharge() {
	h.memory().Give(h.charged)
	h.charged = 0
}

// keep takes the response from its attempt and returns the connection to the pool. If cut is set, the
// response is cut off for the client too.
func (h *bufferedResponse) keep(cut bool) {
	h.full, h.attempt = true, int32(h.request().Attempts())
	h.s.att.Keep(&h.kept, cut, h.request().Time.Tick)
}

// leave ends the running attempt before the request is sent again. An attempt with a failed response
// that has not ended is set aside until a later response replaces it. res is the result of the
// attempt, or nil if there was none, and stream what is known of its event stream.
func (h *bufferedResponse) leave(res *policy.Result, stream *heldStream) {
	if res == nil || res.Cause != policy.CauseStatus || !h.s.att.InFlight() {
		h.s.att.Abandon()
		return
	}
	h.attempt, h.failed = int32(h.request().Attempts()), stream.failed
	h.rest = h.s.setAside()
}

// resume makes the attempt that was set aside the running one, so that its response can be relayed.
func (h *bufferedResponse) resume() heldStream {
	h.s.resume(h.rest)
	h.rest = nil
	h.drop()
	return heldStream{failed: h.failed}
}

// drop forgets the buffered response, if there is one, and returns its memory.
func (h *bufferedResponse) drop() {
	if h.charged > 0 { // everything that is held is charged
		h.forget()
	}
}

func (h *bufferedResponse) forget() {
	h.releaseCharge()
	h.kept.Release(h.request().Conn.Spans())
	h.full = false
	if h.rest != nil {
		h.rest.Abandon()
		h.rest = nil
	}
}

// compact moves the response out of the buffers that it was read into.
func (h *bufferedResponse) compact() {
	if h.full {
		saved := h.kept.Compact(h.request().Conn.Spans())
		h.memory().Give(saved)
		h.charged -= saved
	}
}

// readError reads what the body of the response says about a retry: a wait, that an account is used
// up, or that the request is too large. A wait counts if it is longer than that of the headers. a is the result of the attempt.
// readError returns the reason if the request must not be retried.
func (h *bufferedResponse) readError(res *policy.Result, began *heldStream) policy.Reason {
	if res.Cause != policy.CauseStatus || res.Status < 400 {
		return policy.ReasonNone
	}
	v := h.errorVerdict(errorList(h.request().Route), began)
	switch {
	case v.TooLarge:
		return policy.ReasonRequestTooLarge
	case v.Exhausted && !(v.Guessed && res.HasRetryAfter):
		return policy.ReasonQuotaExhausted
	case !v.HasWait || res.HasRetryAfter && (v.Guessed || res.RetryAfter >= v.Wait),
		v.Guessed && !retryafter.MeansRateLimit(res.Status): // the time limit of a 504 is no wait
		return policy.ReasonNone
	}
	res.RetryAfter, res.HasRetryAfter = v.Wait, true
	h.request().StartPause(res)
	if h.request().PauseTooLong(res) {
		return policy.ReasonRetryAfterTooLong
	}
	return policy.ReasonNone
}

// errorVerdict reads the error in the body of the response, or at the beginning of an event stream.
func (h *bufferedResponse) errorVerdict(list *apierror.List, began *heldStream) apierror.Verdict {
	switch {
	case began.failed && !h.full:
		return began.errorIn(list, h.s.att.Response(), h.s.att.Body().Held())
	case began.failed:
		return began.errorIn(list, h.kept.Response(), h.kept.Body())
	case h.full:
		return bodyVerdict(list, h.kept.Response(), h.kept.Body())
	}
	return apierror.Verdict{}
}

// errorList returns the signs that a route looks for.
func errorList(r *settings.RouteState) *apierror.List {
	if r.ErrorCodes == nil {
		return apierror.Usual()
	}
	return r.ErrorCodes
}

// bodyVerdict reads the error in the body of r, or in what has come of it.
func bodyVerdict(list *apierror.List, r *http1.Response, body []byte) apierror.Verdict {
	switch {
	case len(body) == 0 || !isErrorText(r):
		return apierror.Verdict{}
	case isUncompressed(r):
		return readVerdict(list, r, body)
	}
	space := buffer.Get(apierror.MaxBytes)
	defer space.Put()
	return readVerdict(list, r, contentcoding.Decode(space.Bytes()[:0:apierror.MaxBytes], body, r.Get(http1.ContentEncoding)))
}

func readVerdict(list *apierror.List, r *http1.Response, text []byte) apierror.Verdict {
	return list.Read(text, r.Get(http1.Date), time.Now())
}

// isErrorText reports whether the body of a response may be JSON or a text, by its type. Some servers call
// either of them text/html or text/event-stream. Package apierror ignores what is markup.
func isErrorText(r *http1.Response) bool {
	const text = "text/"
	name := mediaType(r)
	return len(name) == 0 || len(name) > len(text) && http1.EqualFold(name[:len(text)], text) || isJSON(name) || http1.EqualFold(name, "application/x-ndjson")
}

// isPlainJSON reports whether a response has a JSON body that is not compressed.
func isPlainJSON(r *http1.Response) bool { return isUncompressed(r) && isJSON(mediaType(r)) }

// isJSON reports whether a media type is of JSON.
func isJSON(name []byte) bool {
	const suffix = "+json" // RFC 6839 section 3.1
	for _, known := range [...]string{"application/json", "text/json", "application/x-amz-json-1.0", "application/x-amz-json-1.1"} {
		if http1.EqualFold(name, known) {
			return true
		}
	}
	return len(name) > len(suffix) && http1.EqualFold(name[len(name)-len(suffix):], suffix)
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
