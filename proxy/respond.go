package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// fail sends our own response if the upstream never sent one.
func (x *exchange) fail(cause policy.Cause, o policy.Outcome, why policy.Reason) (int, policy.Outcome) {
	if x.noAttemptReason != policy.ReasonNone {
		return x.failStarved(o, why)
	}
	status := 502
	if cause == policy.CauseAttemptTimeout || x.dialErr != nil && x.dialErr.Kind == upstream.KindTimeout {
		status = 504
	}
	x.endIfUnread()
	return x.respondWith(status, o, why.String(), "the upstream "+explainCause(cause))
}

// failStarved is fail where no descriptor was found for the upstream's connection; the
// client's own is given back, and its slot in a rate limit.
func (x *exchange) failStarved(o policy.Outcome, why policy.Reason) (int, policy.Outcome) {
	x.returnRateLimitSlot()
	x.mustClose, x.retryAfter = true, 1
	return x.respondWith(503, o, why.String(), "no file descriptor is left for a connection to the upstream")
}

func explainCause(c policy.Cause) string {
	switch c {
	case policy.CauseDial, policy.CauseTLS:
		return "could not be reached"
	case policy.CauseAttemptTimeout:
		return "did not answer in time"
	case policy.CauseMalformed:
		return "sent a response that is not valid HTTP"
	}
	return "closed the connection before it answered"
}

// respondError sends our own response to a request that cannot be served. It writes nothing if the
// client already got a part of another response.
func (x *exchange) respondError(status int, o policy.Outcome, reason string) (int, policy.Outcome) {
	if x.started {
		x.mustReset = true
		return status, o
	}
	return x.respondWith(status, o, reason, http.StatusText(status))
}

// respondWith writes a short JSON response: what happened, for people, and the reason, for programs.
// A gRPC call gets a gRPC status instead.
func (x *exchange) respondWith(status int, o policy.Outcome, reason, text string) (int, policy.Outcome) {
	if x.grpc {
		code := grpcStatusOf(status)
		if status == 504 {
			code = policy.GRPCDeadlineExceeded // the client's own, or ours
		}
		return x.respondGRPC(code, o, reason, text)
	}
	return x.respondOwn(status, "application/json", x.errorBody(status, reason, text), o, reason)
}

// respondOwn writes a response that is not the upstream's.
func (x *exchange) respondOwn(status int, contentType string, body []byte, o policy.Outcome, reason string) (int, policy.Outcome) {
	x.resp.Minor, x.resp.Status, x.resp.Phrase = 1, status, []byte(http.StatusText(status))
	x.resp.Headers = append(x.resp.Headers[:0],
		http1.NewHeader("Content-Type", contentType),
		http1.NewHeader("Content-Length", strconv.Itoa(len(body))))
	if x.retryAfter > 0 {
		x.resp.Headers = append(x.resp.Headers, http1.NewHeader("Retry-After", strconv.Itoa(x.retryAfter)))
	}
	if status == 405 {
		x.resp.Headers = append(x.resp.Headers, http1.NewHeader("Allow", allowed)) // RFC 9110 section 15.5.6
	}
	return x.writeResponse(body, o, reason)
}

// writeResponse writes our own response in x.resp.
func (x *exchange) writeResponse(body []byte, o policy.Outcome, reason string) (int, policy.Outcome) {
	status := x.resp.Status
	f := http1.Framing{Kind: http1.BodyLength, Length: int64(len(body))}
	opt := forward.ResponseOptions{Framing: f, Minor: x.req.Minor, Close: x.mustClose}
	x.ownHeaders(&opt, reason)
	x.out = forward.AppendResponseHeaders(x.cleanOut(), &x.resp, &opt)
	if string(x.req.Method) != "HEAD" {
		x.out = append(x.out, body...)
		x.bodyBytesSent += int64(len(body))
	}
	x.started = true
	if x.flush() != nil {
		x.mustReset = true
		if o.GaveUp() || o == policy.OutcomeFallback {
			return status, policy.OutcomeClientGone
		}
	}
	return status, o
}

// ownHeaders adds to a head what clients are told of us, where they want it.
func (x *exchange) ownHeaders(o *forward.ResponseOptions, reason string) {
	if !x.route.DryRun && (x.route.ResponseHeaders || x.clientIsProxy()) {
		o.Attempts, o.Reason, o.Fallback = x.attempts, reason, x.fallbackKind
	}
}

func (x *exchange) errorBody(status int, reason, text string) []byte {
	body, _ := json.Marshal(struct {
		Error    string `json:"error"`
		Status   int    `json:"status"`
		Reason   string `json:"reason"`
		Attempts int    `json:"attempts"`
		ID       string `json:"request_id,omitempty"`
	}{"retryproxy: " + text, status, reason, x.attempts, string(x.id)})
	return append(body, '\n')
}

// refusal returns why a well-formed request is not forwarded, or RefusalNone.
func (x *exchange) refusal() http1.Refusal {
	r, q := x.route, x.req
	if x.set.ForwardProxy && q.Form == http1.Absolute && !r.Accepts(q) {
		return http1.RefusalOtherHost
	}
	if r.MaxBodyBytes > 0 && q.Body.Kind == http1.BodyLength && q.Body.Length > r.MaxBodyBytes {
		return http1.RefusalBodyTooLarge
	}
	if (r.Forward.StripPrefix != "" || x.set.table.HasPaths()) &&
		x.set.table.Ambiguous(x.c.listen, q.Authority, q.Path, q.Method, q, r.Forward.StripPrefix) {
		return http1.RefusalAmbiguousPath
	}
	return http1.RefusalNone
}

// refuse responds with the rule that was broken, for people, and its label.
func (x *exchange) refuse(why http1.Refusal) (int, policy.Outcome) {
	x.mustClose = true
	x.tellRefused(why)
	return x.respondWith(why.Status(), policy.OutcomeRefused, why.String(), why.Explain())
}

func (x *exchange) tellRefused(why http1.Refusal) {
	if why == http1.RefusalNone {
		return
	}
	x.reason = why.String()
	if x.set.Refused != nil {
		x.set.Refused(why)
	}
}

// respondToClientError sends our own response if the client's side ended early, unless it left.
func (x *exchange) respondToClientError() (int, policy.Outcome) {
	switch o := x.clientOutcome(); {
	case o == policy.OutcomeClientGone:
		x.mustReset = true
		return 0, o
	case o == policy.OutcomeRequestTimeout:
		return x.respondError(408, o, "request_timeout")
	case x.bodyRefusal != http1.RefusalNone:
		return x.respondError(x.bodyRefusal.Status(), o, x.bodyRefusal.String())
	default:
		return x.respondError(400, o, "request_broken")
	}
}

// clientOutcome returns the outcome of a request whose client's side ended early, and counts a
// refusal.
func (x *exchange) clientOutcome() policy.Outcome {
	switch x.clientEnd.Load() {
	case clientBodyBroken:
		x.tellRefused(x.bodyRefusal)
		return policy.OutcomeRequestBroken
	case clientBodyTooLarge:
		x.tellRefused(x.bodyRefusal)
		return policy.OutcomeRefused
	case clientTooSlow:
		return policy.OutcomeRequestTimeout
	}
	return policy.OutcomeClientGone
}

// isAnsweredLocally reports whether the request is an OPTIONS or TRACE that must not be forwarded
// (RFC 9110 section 7.6.2).
func (x *exchange) isAnsweredLocally() bool {
	n, ok := forward.MaxForwards(x.req)
	return ok && n == 0
}

// allowed are the methods in the Allow header of our own responses.
const allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// respondToMaxForwards responds as the final recipient. OPTIONS gets an empty response. TRACE is not
// allowed, because its echo could show headers that the client must not see.
func (x *exchange) respondToMaxForwards() (int, policy.Outcome) {
	x.mustClose = x.mustClose || !x.req.Body.Empty() || x.c.server.draining.Load()
	if string(x.req.Method) == "TRACE" {
		return x.respondError(405, policy.OutcomeRefused, "max_forwards")
	}
	x.out = append(x.cleanOut(), "HTTP/1.1 200 OK\r\nAllow: "+allowed+"\r\nContent-Length: 0\r\n"...)
	if x.mustClose {
		x.out = append(x.out, "Connection: close\r\n"...)
	}
	x.out = append(x.out, "\r\n"...)
	if x.flush() != nil {
		x.mustReset = true
	}
	return 200, policy.OutcomeSuccess
}
