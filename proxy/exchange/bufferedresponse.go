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
func (b *bufferedResponse) holds() bool { return b.full || b.rest != nil }

// keptOf reports whether that response is the one of the n-th attempt.
func (b *bufferedResponse) keptOf(n int) bool { return b.holds() && b.attempt == int32(n) }

// read buffers the response of the attempt that just ended, in place of an older one. A response
// that does not end within bodyWait stays in its attempt, with what has come of it; see leave. If
// read returns a reason, the response cannot be buffered. It can then still be relayed from its first
// byte, as it can while it is in its attempt.
func (b *bufferedResponse) read() policy.Reason {
	b.drop()
	b.received = b.request().Time.Clock
	body := b.s.att.Body()
	limit := b.request().Route.ResponseBufferBytes + int64(len(body.Held())) // what was held back is in memory already
	if body.Exceeds(limit) {
		return policy.ReasonResponseTooLarge
	}
	if !body.HasRoom() {
		return policy.ReasonResponseTooLarge // its headers alone fill the buffer
	}
	if !b.charge(b.s.att.ResponseMemory()) {
		return policy.ReasonRetryBufferFull
	}
	switch why, err := b.readBody(body, limit); {
	case err == io.EOF, err == attempt.ErrCut:
		b.keep(err == attempt.ErrCut)
	case why != policy.ReasonNone:
		b.releaseCharge()
		return why
	}
	return policy.ReasonNone // if it has not ended, no time is left for it, or the client left
}

// readLast buffers the response of the last attempt until the fallback has a better one. res is
// the result of that attempt; nil means that there was none. It reports false if the response
// cannot be buffered.
func (b *bufferedResponse) readLast(res *policy.Result) bool {
	if res == nil || res.Cause != policy.CauseStatus || b.keptOf(b.request().Attempts()) {
		return true
	}
	return b.read() == policy.ReasonNone
}

// readBody reads the body ahead, at most limit bytes. It returns what ended it; a reason says that it
// cannot be buffered.
func (b *bufferedResponse) readBody(body *attempt.Body, limit int64) (policy.Reason, error) {
	until := b.received.Add(bodyWait)
	for {
		grew, err := body.ReadAhead(until)
		switch {
		case err != nil:
			return policy.ReasonNone, err
		case !b.charge(grew):
			return policy.ReasonRetryBufferFull, nil
		case int64(len(body.Held())) > limit:
			return policy.ReasonResponseTooLarge, nil
		}
	}
}

func (b *bufferedResponse) request() *request.Request { return b.s.r }

// memory returns what bytes are charged to.
func (b *bufferedResponse) memory() *request.RetryBuffer { return b.request().Process.RetryBuffer }

func (b *bufferedResponse) charge(n int) bool {
	if n > 0 && !b.memory().Take(n) {
		return false
	}
	b.charged += n
	return true
}

func (b *bufferedResponse) releaseCharge() {
	b.memory().Give(b.charged)
	b.charged = 0
}

// keep takes the response from its attempt and returns the connection to the pool. If cut is set, the
// response is cut off for the client too.
func (b *bufferedResponse) keep(cut bool) {
	b.full, b.attempt = true, int32(b.request().Attempts())
	b.s.att.Keep(&b.kept, cut, b.request().Time.Tick)
}

// leave ends the running attempt before the request is sent again. An attempt with a failed response
// that has not ended is set aside until a later response replaces it. res is the result of the
// attempt, or nil if there was none, and stream what is known of its event stream.
func (b *bufferedResponse) leave(res *policy.Result, stream *heldStream) {
	if res == nil || res.Cause != policy.CauseStatus || !b.s.att.InFlight() {
		b.s.att.Abandon()
		return
	}
	b.attempt, b.failed = int32(b.request().Attempts()), stream.failed
	b.rest = b.s.setAside()
}

// resume makes the attempt that was set aside the running one, so that its response can be relayed.
func (b *bufferedResponse) resume() heldStream {
	b.s.resume(b.rest)
	b.rest = nil
	b.drop()
	return heldStream{failed: b.failed}
}

// drop forgets the buffered response, if there is one, and returns its memory.
func (b *bufferedResponse) drop() {
	if b.charged > 0 { // everything that is held is charged
		b.forget()
	}
}

func (b *bufferedResponse) forget() {
	b.releaseCharge()
	b.kept.Release(b.request().Conn.Spans())
	b.full = false
	if b.rest != nil {
		b.rest.Abandon()
		b.rest = nil
	}
}

// compact moves the response out of the buffers that it was read into.
func (b *bufferedResponse) compact() {
	if b.full {
		saved := b.kept.Compact(b.request().Conn.Spans())
		b.memory().Give(saved)
		b.charged -= saved
	}
}

// readError reads what the body of the response says about a retry: a wait, that an account is used
// up, or that the request is too large. A wait counts if it is longer than that of the headers. a is the result of the attempt.
// readError returns the reason if the request must not be retried.
func (b *bufferedResponse) readError(res *policy.Result, began *heldStream) policy.Reason {
	if res.Cause != policy.CauseStatus || res.Status < 400 {
		return policy.ReasonNone
	}
	v := b.errorVerdict(errorList(b.request().Route), began)
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
	b.request().StartPause(res)
	if b.request().PauseTooLong(res) {
		return policy.ReasonRetryAfterTooLong
	}
	return policy.ReasonNone
}

// errorVerdict reads the error in the body of the response, or at the beginning of an event stream.
func (b *bufferedResponse) errorVerdict(list *apierror.List, began *heldStream) apierror.Verdict {
	switch {
	case began.failed && !b.full:
		return began.errorIn(list, b.s.att.Response(), b.s.att.Body().Held())
	case began.failed:
		return began.errorIn(list, b.kept.Response(), b.kept.Body())
	case b.full:
		return bodyVerdict(list, b.kept.Response(), b.kept.Body())
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
