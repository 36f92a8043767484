package exchange

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// respondError sends our own response to a request that cannot be served. It writes nothing if the
// client already got a part of another response.
func (w *responseWriter) respondError(status int, o policy.Outcome, reason string) (int, policy.Outcome) {
	if w.started {
		w.mustReset = true
		return status, o
	}
	return w.respondWith(status, o, reason, http.StatusText(status))
}

// respondWith writes a short JSON response: what happened, for people, and the reason, for programs.
// A gRPC call gets a gRPC status instead.
func (w *responseWriter) respondWith(status int, o policy.Outcome, reason, text string) (int, policy.Outcome) {
	if w.r.GRPC {
		code := grpcStatusOf(status)
		if status == 504 {
			code = policy.GRPCDeadlineExceeded // the client's own, or ours
		}
		return w.respondGRPC(code, o, reason, text)
	}
	return w.respondOwn(status, "application/json", w.errorBody(status, reason, text), o, reason)
}

// respondOwn writes a response that is not the upstream's.
func (w *responseWriter) respondOwn(status int, contentType string, body []byte, o policy.Outcome, reason string) (int, policy.Outcome) {
	resp := newResponse(status,
		http1.NewHeader("Content-Type", contentType),
		http1.NewHeader("Content-Length", strconv.Itoa(len(body))))
	if w.retryAfter > 0 {
		resp.Headers = append(resp.Headers, http1.NewHeader("Retry-After", strconv.Itoa(w.retryAfter)))
	}
	if status == 405 {
		resp.Headers = append(resp.Headers, http1.NewHeader("Allow", allowed)) // RFC 9110 section 15.5.6
	}
	return w.writeResponse(resp, body, o, reason)
}

// newResponse returns a response of our own.
func newResponse(status int, headers ...http1.Header) *http1.Response {
	return &http1.Response{Minor: 1, Status: status, Phrase: []byte(http.StatusText(status)), Headers: headers}
}

// writeResponse writes a response of our own.
func (w *responseWriter) writeResponse(resp *http1.Response, body []byte, o policy.Outcome, reason string) (int, policy.Outcome) {
	status := resp.Status
	f := http1.Framing{Kind: http1.BodyLength, Length: int64(len(body))}
	opt := forward.ResponseOptions{Framing: f, Minor: w.r.HTTP.Minor, Close: w.mustClose, Changes: w.r.Route.ResponseChanges}
	w.ownHeaders(&opt, resp, reason)
	w.buf = forward.AppendResponseHeaders(w.clean(), resp, &opt)
	if string(w.r.HTTP.Method) != "HEAD" {
		w.buf = append(w.buf, body...)
		w.r.BodyBytesSent += int64(len(body))
	}
	w.started = true
	if w.flush() != nil {
		w.mustReset = true
		if o.GaveUp() || o == policy.OutcomeFallback {
			return status, policy.OutcomeClientGone
		}
	}
	return status, o
}

func (w *responseWriter) errorBody(status int, reason, text string) []byte {
	body, _ := json.Marshal(struct {
		Error    string `json:"error"`
		Status   int    `json:"status"`
		Reason   string `json:"reason"`
		Attempts int    `json:"attempts"`
		ID       string `json:"request_id,omitempty"`
	}{"retryproxy: " + text, status, reason, w.r.Attempts, string(w.r.ID)})
	return append(body, '\n')
}

// respondGRPC is our own answer to a gRPC call: a header that is the trailers as
// well ("Trailers-Only").
func (w *responseWriter) respondGRPC(status policy.GRPCStatus, o policy.Outcome, reason, text string) (int, policy.Outcome) {
	message := forward.AppendGRPCMessage(nil, "retryproxy: "+text)
	resp := newResponse(200,
		http1.NewHeader("Content-Type", "application/grpc"),
		http1.NewHeader("Grpc-Status", strconv.Itoa(int(status))),
		http1.NewHeader("Grpc-Message", string(message)))
	if w.retryAfter > 0 {
		resp.Headers = append(resp.Headers, http1.NewHeader("Grpc-Retry-Pushback-Ms", strconv.Itoa(w.retryAfter*1000)))
	}
	return w.writeResponse(resp, nil, o, reason)
}

// endGRPCCall ends a call whose answer was cut off by the upstream: the client gets
// a status, as it would from a server that fails.
func (w *responseWriter) endGRPCCall() error {
	w.buf = http1.AppendLastChunk(w.buf, []http1.Header{
		http1.NewHeader("Grpc-Status", strconv.Itoa(int(policy.GRPCUnavailable))),
		http1.NewHeader("Grpc-Message", string(forward.AppendGRPCMessage(nil, "retryproxy: the upstream ended the call before its status came"))),
	})
	return w.flush()
}
