package response

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// Failed responds for an upstream that never sent a response. timedOut means that the upstream, or
// the dial, took too long.
func (w *Writer) Failed(cause policy.Cause, timedOut bool, o policy.Outcome, why policy.Reason) (int, policy.Outcome) {
	status := 502
	if timedOut || cause == policy.CauseAttemptTimeout {
		status = 504
	}
	return w.With(status, o, why.String(), "the upstream "+explainCause(cause))
}

// Starved responds if no descriptor was free for the upstream's connection. The client's
// connection is then closed, which frees its descriptor.
func (w *Writer) Starved(o policy.Outcome, why policy.Reason) (int, policy.Outcome) {
	w.MustClose, w.RetryAfter = true, 1
	return w.With(503, o, why.String(), "no file descriptor is left for a connection to the upstream")
}

func explainCause(c policy.Cause) string {
	switch c {
	case policy.CauseDial, policy.CauseTLS:
		return "could not be reached"
	case policy.CauseUntrusted:
		return "has a certificate that cannot be verified"
	case policy.CauseAttemptTimeout:
		return "did not respond in time"
	case policy.CauseMalformed:
		return "sent a response that is not valid HTTP"
	}
	return "closed the connection before it responded"
}

// Refuse responds with the rule that was broken, for people, and the rule's label, for programs.
func (w *Writer) Refuse(why http1.Refusal) (int, policy.Outcome) {
	w.MustClose = true
	w.countRefusal(why)
	return w.With(why.Status(), policy.OutcomeRefused, why.String(), why.Explain())
}

func (w *Writer) countRefusal(why http1.Refusal) {
	if why == http1.RefusalNone {
		return
	}
	w.report.Reason = why.String()
	if w.r.Settings.Refused != nil {
		w.r.Settings.Refused(why)
	}
}

// ClientError sends our own response if the client's side ended early, unless the client left.
func (w *Writer) ClientError() (int, policy.Outcome) {
	switch o := w.ClientOutcome(); {
	case o == policy.OutcomeClientGone:
		w.MustReset = true
		return 0, o
	case o == policy.OutcomeRequestTimeout:
		return w.Error(408, o, "request_timeout")
	case w.r.BodyRefusal != http1.RefusalNone:
		return w.Error(w.r.BodyRefusal.Status(), o, w.r.BodyRefusal.String())
	default:
		return w.Error(400, o, "request_broken")
	}
}

// ClientOutcome returns the outcome of a request whose client's side ended early. It counts a
// refusal.
func (w *Writer) ClientOutcome() policy.Outcome {
	switch w.r.ClientEnd.Load() {
	case request.ClientBodyBroken:
		w.countRefusal(w.r.BodyRefusal)
		return policy.OutcomeRequestBroken
	case request.ClientTooSlow:
		return policy.OutcomeRequestTimeout
	}
	return policy.OutcomeClientGone
}

// allowed lists the methods in the Allow header of our own responses.
const allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// MaxForwards responds as the final recipient. OPTIONS gets an empty response. TRACE is not
// allowed, because its echo could show headers that the client must not see.
func (w *Writer) MaxForwards() (int, policy.Outcome) {
	w.MustClose = w.MustClose || !w.r.HTTP.Body.Empty() || w.r.Process.Draining.Load()
	if string(w.r.HTTP.Method) == "TRACE" {
		return w.Error(405, policy.OutcomeRefused, "max_forwards")
	}
	resp := newResponse(200, http1.NewHeader("Allow", allowed), http1.NewHeader("Content-Length", "0"))
	return w.writeResponse(resp, nil, policy.OutcomeSuccess, "")
}
