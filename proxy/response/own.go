package response

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/errorbody"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// Error sends our own response to a request that cannot be served. It writes nothing if the client
// already has a part of another response.
func (w *Writer) Error(status int, o policy.Outcome, reason string) request.End {
	if w.started {
		w.mustReset = true
		return request.End{Status: status, Outcome: o, Reason: reason}
	}
	return w.With(status, o, reason, http.StatusText(status))
}

// With writes a short JSON response in the form that the client reads: text for people, and reason for
// programs. A gRPC call gets a gRPC status instead.
func (w *Writer) With(status int, o policy.Outcome, reason, text string) request.End {
	if w.r.GRPC {
		code := grpcStatusOf(status)
		if status == 504 {
			code = policy.GRPCDeadlineExceeded // the client's deadline, or ours
		}
		return w.GRPC(code, o, reason, text)
	}
	form := errorbody.For(w.r.HTTP.Headers, w.r.Route.ModelAPI)
	e := errorbody.Error{Status: status, Reason: reason, Text: text, Attempts: w.r.Attempts(), ID: string(w.r.Out.ID)}
	return w.own(status, w.headersOf(form), e.Append(nil, form), o, reason)
}

// headersOf returns the headers of an error body of that form. A client of a model's API reads the request id
// from Request-Id or X-Request-Id (anthropic-sdk-go and openai-go), so it has both.
func (w *Writer) headersOf(form errorbody.Form) []http1.Header {
	headers := []http1.Header{http1.NewHeader("Content-Type", form.ContentType())}
	if form == errorbody.ModelAPI && len(w.r.Out.ID) > 0 {
		headers = append(headers, http1.NewHeader("Request-Id", string(w.r.Out.ID)))
	}
	return headers
}

// Own writes a response of our own.
func (w *Writer) Own(status int, contentType string, body []byte, o policy.Outcome, reason string) request.End {
	return w.own(status, []http1.Header{http1.NewHeader("Content-Type", contentType)}, body, o, reason)
}

// own writes a response of our own with these headers and those that its status requires.
func (w *Writer) own(status int, headers []http1.Header, body []byte, o policy.Outcome, reason string) request.End {
	headers = append(headers, http1.NewHeader("Content-Length", strconv.Itoa(len(body))))
	if w.retryAfter > 0 {
		headers = append(headers, http1.NewHeader("Retry-After", strconv.Itoa(int(w.retryAfter))))
	}
	if status == 405 {
		headers = append(headers, http1.NewHeader("Allow", allowed)) // RFC 9110 section 15.5.6
	}
	return w.writeResponse(newResponse(status, headers...), body, o, reason)
}

// newResponse returns a response of our own.
func newResponse(status int, headers ...http1.Header) *http1.Response {
	return &http1.Response{Minor: 1, Status: status, Phrase: []byte(http.StatusText(status)), Headers: headers}
}

// writeResponse writes a response of our own.
func (w *Writer) writeResponse(resp *http1.Response, body []byte, o policy.Outcome, reason string) request.End {
	end := request.End{Status: resp.Status, Outcome: o, Reason: reason}
	f := http1.Framing{Kind: http1.BodyLength, Length: int64(len(body))}
	opt := forward.ResponseOptions{Form: w.r.Conn.Form(), Framing: f, Minor: w.r.HTTP.Minor, Close: w.mustClose, Date: clock.Date(time.Now()), Changes: w.r.Route.ResponseChanges}
	w.ownHeaders(&opt, resp, reason)
	if string(w.r.HTTP.Method) == "HEAD" {
		body = nil
	}
	w.buf.Appended(forward.AppendResponseHeaders(w.clean(), resp, &opt))
	if w.isStream() {
		w.beginStream(resp.Status, len(body) == 0)
	}
	w.buf.Append(body)
	w.sent += int64(len(body))
	w.started = true
	if w.EndBody(f, nil) != nil {
		w.mustReset = true
		if o.GaveUp() || o == policy.OutcomeFallback {
			end.Outcome = policy.OutcomeClientGone
		}
	}
	return end
}

// GRPC responds to a gRPC call with headers that are also the trailers ("Trailers-Only").
func (w *Writer) GRPC(status policy.GRPCStatus, o policy.Outcome, reason, text string) request.End {
	message := forward.AppendGRPCMessage(nil, "retryproxy: "+text)
	headers := []http1.Header{
		http1.NewHeader("Content-Type", "application/grpc"),
		http1.NewHeader("Grpc-Status", strconv.Itoa(int(status))),
		http1.NewHeader("Grpc-Message", string(message)),
	}
	if w.retryAfter > 0 {
		headers = append(headers, http1.NewHeader("Grpc-Retry-Pushback-Ms", strconv.Itoa(int(w.retryAfter)*1000)))
	}
	return w.writeResponse(newResponse(200, headers...), nil, o, reason)
}

// EndGRPCCall ends a call whose response the upstream cut off. The client gets a status, as from a
// server that fails.
func (w *Writer) EndGRPCCall() error {
	return w.endGRPCCall(policy.GRPCUnavailable, "the upstream ended the call without a gRPC status")
}

// EndGRPCCallWithoutTrailers ends a call whose status is in trailers that are too large.
func (w *Writer) EndGRPCCallWithoutTrailers() error {
	return w.endGRPCCall(policy.GRPCResourceExhausted, http1.RefusalTrailersTooLarge.String()+": the trailers of the call are larger than the limit for headers")
}

func (w *Writer) endGRPCCall(status policy.GRPCStatus, text string) error {
	return w.endBody(http1.Framing{Kind: http1.BodyChunked}, []http1.Header{
		http1.NewHeader("Grpc-Status", strconv.Itoa(int(status))),
		http1.NewHeader("Grpc-Message", string(forward.AppendGRPCMessage(nil, "retryproxy: "+text))),
	})
}

// InPlaceOf responds to a gRPC call in place of resp, which is not gRPC. e has the outcome and the reason.
func (w *Writer) InPlaceOf(resp *http1.Response, e request.End) request.End {
	text := fmt.Sprintf("the upstream answered with HTTP status %d and not with gRPC", resp.Status)
	return w.GRPC(grpcStatusOf(resp.Status), e.Outcome, e.Reason, text)
}

// grpcStatusOf maps an HTTP status to a gRPC status (gRPC, "HTTP to gRPC Status Code Mapping",
// extended by our own 4xx).
func grpcStatusOf(status int) policy.GRPCStatus {
	switch status {
	case 400:
		return policy.GRPCInternal
	case 401:
		return policy.GRPCUnauthenticated
	case 403:
		return policy.GRPCPermissionDenied
	case 404, 405, 501, 505:
		return policy.GRPCUnimplemented
	case 408:
		return policy.GRPCDeadlineExceeded
	case 413, 431:
		return policy.GRPCResourceExhausted
	case 429, 502, 503, 504:
		return policy.GRPCUnavailable
	}
	return policy.GRPCUnknown
}

// Failed responds for an upstream that never sent a response. timedOut means that the upstream, or
// the dial, took too long.
func (w *Writer) Failed(cause policy.Cause, timedOut bool, o policy.Outcome, why policy.Reason) request.End {
	status := 502
	if timedOut || cause == policy.CauseAttemptTimeout {
		status = 504
	}
	return w.With(status, o, why.String(), "the upstream "+explainCause(cause))
}

func explainCause(c policy.Cause) string {
	switch c {
	case policy.CauseDial, policy.CauseTLS:
		return "could not be reached"
	case policy.CauseUntrusted:
		return "has a TLS certificate that cannot be verified"
	case policy.CauseAttemptTimeout:
		return "did not respond in time"
	case policy.CauseMalformed:
		return "sent a response that is not valid HTTP"
	case policy.CauseHeadersTooLarge:
		return "sent response headers that are larger than the limit"
	}
	return "closed the connection before it responded"
}

// Refuse responds with the rule that was broken, for people, and the rule's label, for programs.
func (w *Writer) Refuse(why http1.Refusal) request.End {
	w.mustClose = true
	if why.Status() == http.StatusServiceUnavailable {
		w.retryAfter = 1
	}
	w.countRefusal(why)
	return w.With(why.Status(), policy.OutcomeRefused, why.String(), why.Explain())
}

// countRefusal counts a refusal, if there is one, and returns its label.
func (w *Writer) countRefusal(why http1.Refusal) (reason string) {
	if why == http1.RefusalNone {
		return ""
	}
	if w.r.Settings.Refused != nil {
		w.r.Settings.Refused(why)
	}
	return why.String()
}

// ClientError sends our own response if the client's side ended early, unless the client left.
func (w *Writer) ClientError() request.End {
	switch e := w.ClientEnd(); {
	case e.Outcome == policy.OutcomeClientGone:
		w.mustReset = true
		return e
	case e.Outcome == policy.OutcomeRequestTimeout:
		return w.Error(408, e.Outcome, "request_timeout")
	case e.Outcome == policy.OutcomeRefused:
		w.retryAfter = 1
		return w.Error(http1.RefusalNoClientSlot.Status(), e.Outcome, e.Reason)
	case w.r.BodyRefusal() != http1.RefusalNone:
		return w.Error(w.r.BodyRefusal().Status(), e.Outcome, e.Reason)
	default:
		return w.Error(400, e.Outcome, "request_broken")
	}
}

// ClientEnd returns what a request came to whose client's side ended early, without a status. It counts a
// refusal.
func (w *Writer) ClientEnd() request.End {
	switch w.r.ClientEnd() {
	case request.ClientBodyBroken:
		return request.End{Outcome: policy.OutcomeRequestBroken, Reason: w.countRefusal(w.r.BodyRefusal())}
	case request.ClientTooSlow:
		return request.End{Outcome: policy.OutcomeRequestTimeout}
	case request.ClientTurnedAway:
		return request.End{Outcome: policy.OutcomeRefused, Reason: w.countRefusal(http1.RefusalNoClientSlot)}
	}
	return request.End{Outcome: policy.OutcomeClientGone}
}

// allowed lists the methods in the Allow header of our own responses.
const allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// MaxForwards responds as the final recipient. OPTIONS gets an empty response. TRACE is not
// allowed, because its echo could show headers that the client must not see.
func (w *Writer) MaxForwards() request.End {
	w.mustClose = w.mustClose || !w.r.HTTP.Body.Empty() || w.r.IsDraining()
	if string(w.r.HTTP.Method) == "TRACE" {
		return w.Error(405, policy.OutcomeRefused, "max_forwards")
	}
	resp := newResponse(200, http1.NewHeader("Allow", allowed), http1.NewHeader("Content-Length", "0"))
	return w.writeResponse(resp, nil, policy.OutcomeSuccess, "")
}
