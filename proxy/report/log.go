package report

import (
	"bytes"
	"math"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/printable"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// logDone writes one line for the request: in the access log, or for a request that was given up.
// The number of the latter is limited per minute.
func (r *Report) logDone(e request.End, took time.Duration, sent int64) {
	log := r.Request.Settings.Log
	switch failed := worthALine(e.Outcome); {
	case r.Request.Settings.AccessLog && failed:
		r.logRequest(log.Warn, "request", e, took, sent)
	case r.Request.Settings.AccessLog:
		r.logRequest(log.Info, "request", e, took, sent)
	case failed && r.Request.Route.LogsGivenUp():
		r.logRequest(log.Warn, "request given up", e, took, sent)
	}
}

// worthALine reports whether a client is likely to complain about an outcome.
func worthALine(o policy.Outcome) bool {
	switch o {
	case policy.OutcomeResponseBroken, policy.OutcomeStreamCut, policy.OutcomeFailFast, policy.OutcomeQueueDropped, policy.OutcomeQueueTimeout, policy.OutcomeOverloaded,
		policy.OutcomeRateLimitPause, policy.OutcomeRateLimited, policy.OutcomeFallback:
		return true
	}
	return o.GaveUp()
}

// Limits for what a line shows of the client's bytes; headers may have 64 KiB.
const (
	loggedPath  = 1 << 10
	loggedField = 256
)

// logRequest writes a line without secrets: the query is left out.
func (r *Report) logRequest(write func(string, ...zap.Field), msg string, e request.End, took time.Duration, sent int64) {
	target := printable.Bytes(r.Request.HTTP.Path, loggedPath)
	if r.Request.HTTP.HasQuery {
		target = append(bytes.Clone(target), "?..."...)
	}
	write(msg,
		zap.String("route", r.Request.Route.Name),
		zap.ByteString("method", printable.Bytes(r.Request.HTTP.Method, loggedField)),
		zap.ByteString("host", printable.Bytes(r.Request.HTTP.Authority, loggedField)),
		zap.ByteString("path", target),
		zap.Int("status", e.Status),
		zap.Stringer("outcome", e.Outcome),
		zap.String("outcome_words", r.outcomeWords(e.Outcome)),
		zap.Int64("request_bytes", r.Request.Body.Total()),
		zap.Int64("response_bytes", sent),
		zap.Duration("duration_seconds", took),
		zap.Array("attempts", &r.AttemptLog),
		zap.String("peer", r.Request.Conn.Peer().Text),
		zap.ByteString("user_agent", printable.Bytes(r.Request.HTTP.Get(http1.UserAgent), loggedField)),
		zap.ByteString("request_id", r.Request.Out.ID),
		zap.String("trace_id", r.traceID()),
		zap.String("reason", e.Reason),
	)
}

// outcomeWords returns the outcome in words, for people; "" if the first attempt was good.
func (r *Report) outcomeWords(o policy.Outcome) string {
	if o == policy.OutcomeSuccess {
		return ""
	}
	return o.WordsFor(string(printable.Bytes(r.Request.HTTP.Method, loggedField)))
}

// traceID returns the trace id of the request's span, or the client's, or "".
func (r *Report) traceID() string {
	if r.Trace.Request != nil {
		return r.Trace.Request.TraceID()
	}
	parent, _ := forward.TraceContext(r.Request.HTTP)
	return forward.TraceID(parent)
}

// trailLength bounds the attempts kept for a log line: the first ones and the last.
const trailLength = 8

// attemptLog holds the attempts of a request, for the logs.
type attemptLog struct {
	steps [trailLength]step
	n     int
}

type step struct {
	Began  micros // since the request began
	Took   micros
	wait   micros // after it
	Status int16
	Cause  policy.Cause
	class  policy.Class
	Addr   string              // of the endpoint; "" if none was chosen
	Dial   *upstream.DialError // nil unless dialling failed
}

// micros is a time in microseconds, up to 71 minutes. It takes half the memory of a time.Duration;
// every connection has room for the steps of its request.
type micros uint32

func (m micros) duration() time.Duration { return time.Duration(m) * time.Microsecond }

func inMicros(d time.Duration) micros { return micros(min(max(d.Microseconds(), 0), math.MaxUint32)) }

func (t *attemptLog) reset() { t.n = 0 }

// attempted adds an attempt.
func (t *attemptLog) attempted(s step) {
	if t.n < trailLength {
		t.n++
	}
	t.steps[t.n-1] = s
}

func (t *attemptLog) Waited(d time.Duration) {
	if t.n > 0 {
		t.steps[t.n-1].wait = inMicros(d)
	}
}

// MarshalLogArray writes the attempts as objects: the endpoint's address, status or
// cause (of a failed connection also its kind and error), class, duration_seconds,
// and wait_seconds if a wait followed.
func (t *attemptLog) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for i := range t.steps[:t.n] {
		if err := enc.AppendObject(&t.steps[i]); err != nil {
			return err
		}
	}
	return nil
}

// MarshalLogObject writes one attempt.
func (s *step) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	if s.Addr != "" {
		enc.AddString("address", s.Addr)
	}
	if s.Status > 0 {
		enc.AddInt16("status", s.Status)
	} else {
		enc.AddString("cause", s.Cause.String())
	}
	if s.Dial != nil {
		enc.AddString("kind", s.Dial.Kind.String())
		enc.AddString("error", s.Dial.Text())
	}
	enc.AddString("class", classText(s.class))
	enc.AddDuration("duration_seconds", s.Took.duration())
	if s.wait > 0 {
		enc.AddDuration("wait_seconds", s.wait.duration())
	}
	return nil
}

// classText returns the class as a reader of one line understands it. The label of metrics does not
// say what is unknown.
func classText(c policy.Class) string {
	if c == policy.Unknown {
		return "unknown_if_processed"
	}
	return c.String()
}
