package proxy

import (
	"bytes"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// logDone writes the request's one line: the access log's, or without it one for a
// request given up, of which there are only so many a minute.
func (x *exchange) logDone(code int, o policy.Outcome, took time.Duration) {
	switch failed := worthALine(o); {
	case x.set.AccessLog && failed:
		x.logRequest(x.set.Log.Warn, "request", code, o, took)
	case x.set.AccessLog:
		x.logRequest(x.set.Log.Info, "request", code, o, took)
	case failed && x.route.gaveUpLog.Allow():
		x.logRequest(x.set.Log.Warn, "request given up", code, o, took)
	}
}

// worthALine reports whether an outcome is one that its client will complain of.
func worthALine(o policy.Outcome) bool {
	switch o {
	case policy.OutcomeResponseBroken, policy.OutcomeFailFast, policy.OutcomeQueueDropped, policy.OutcomeQueueTimeout, policy.OutcomeOverloaded,
		policy.OutcomeRateLimitPause, policy.OutcomeClientThrottled, policy.OutcomeRateLimited, policy.OutcomeFallback:
		return true
	}
	return o.GaveUp()
}

// What a line shows of what the client sent, in bytes: a head may be of 64 KiB.
const (
	loggedPath  = 1 << 10
	loggedField = 256
)

// logRequest writes a line without anything secret: the query is left out.
func (x *exchange) logRequest(write func(string, ...zap.Field), msg string, code int, o policy.Outcome, took time.Duration) {
	target := printable(x.req.Path, loggedPath)
	if x.req.HasQuery {
		target = append(bytes.Clone(target), "?..."...)
	}
	write(msg,
		zap.String("route", x.route.Name),
		zap.ByteString("method", printable(x.req.Method, loggedField)),
		zap.ByteString("host", printable(x.req.Authority, loggedField)),
		zap.ByteString("path", target),
		zap.Int("status", code),
		zap.Stringer("outcome", o),
		zap.Int64("request_bytes", x.body.total),
		zap.Int64("response_bytes", x.bodyBytesSent),
		zap.Duration("duration_seconds", took),
		zap.Array("attempts", &x.attemptLog),
		zap.String("peer", x.c.peer.Text),
		zap.ByteString("user_agent", printable(x.req.Get(http1.UserAgent), loggedField)),
		zap.ByteString("request_id", x.id),
		zap.String("trace_id", x.traceID()),
		zap.String("reason", x.reason),
	)
}

// traceID is the id of the trace that the request belongs to: of its span, else
// the client's; "" if there is none.
func (x *exchange) traceID() string {
	if x.trace.request != nil {
		return x.trace.request.TraceID()
	}
	parent, _ := forward.TraceContext(x.req)
	return forward.TraceID(parent)
}

// printable is text that cannot steer a terminal, of at most max bytes and "...":
// without control characters, and in UTF-8. It is text itself where it can be.
func printable(text []byte, max int) []byte {
	cut := len(text) > max
	if cut {
		text = text[:max]
	}
	if bytes.ContainsFunc(text, isUnprintable) {
		text = bytes.Map(func(r rune) rune {
			if isUnprintable(r) {
				return '?'
			}
			return r
		}, text)
	}
	if cut {
		text = append(bytes.Clone(text), "..."...)
	}
	return text
}

func isUnprintable(r rune) bool { return r == utf8.RuneError || r != ' ' && !unicode.IsPrint(r) }
