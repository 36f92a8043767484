package exchange

import (
	"bytes"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// readErrorBody takes what the buffered response a says about a retry in its body: a wait, which
// counts if it is longer than that of the headers, or that an account is used up. It returns the
// reason if there is to be no retry.
func (x *Exchange) readErrorBody(a *policy.Attempt) policy.Reason {
	body := x.errorObject()
	if a.Cause != policy.CauseStatus || a.Status < 400 || len(body) == 0 {
		return policy.ReasonNone
	}
	list := x.Route.ErrorCodes
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
	x.StartPause(a)
	if x.PauseTooLong(a) {
		return policy.ReasonRetryAfterTooLong
	}
	return policy.ReasonNone
}

// errorObject returns the JSON text of the buffered response: its body, or the error that an event
// stream began with. It returns nil if the response has none.
func (x *Exchange) errorObject() []byte {
	h := &x.buffered
	switch {
	case x.stream.failed:
		return x.stream.reader.Error(h.body)
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
