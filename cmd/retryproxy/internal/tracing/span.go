package tracing

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
)

// request is the span of a request, kind server.
type request struct {
	t      *Tracing
	span   trace.Span
	ctx    context.Context
	method []attribute.KeyValue
	path   string
	name   string // of the attempts' spans
	client bool   // the client said which span it is in
	clock  wall
	open   *attempt // answered, and still relayed or in flight
}

// Request is part of proxy.Tracer.
func (t *Tracing) Request(r *proxy.TraceRequest) proxy.RequestSpan {
	parent := clientsContext(r.Parent, r.State)
	s := &request{t: t, client: parent.IsValid(), clock: wallAt(r.Began), path: cut(r.Path, maxPath)}
	s.name, s.method = methodOf(r.Method)
	ctx := context.Background()
	if s.client {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	all := append([]attribute.KeyValue{
		attribute.String("url.scheme", r.Scheme),
		attribute.String("url.path", s.path),
		attribute.String("network.protocol.version", protocol(r)),
		attribute.String("retryproxy.route", r.Route),
	}, s.method...)
	all = append(all, server(cut(r.Authority, maxName))...)
	if r.Peer != "" {
		all = append(all, attribute.String("client.address", r.Peer))
	}
	s.ctx, s.span = t.tracer.Start(ctx, s.name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(s.clock.of(r.Began)), trace.WithAttributes(all...))
	return s
}

// TraceID is part of proxy.RequestSpan.
func (s *request) TraceID() string {
	if id := s.span.SpanContext().TraceID(); id.IsValid() {
		return id.String()
	}
	return ""
}

// Waited is part of proxy.RequestSpan.
func (s *request) Waited(what string, began time.Time, took time.Duration) {
	s.span.AddEvent("retryproxy.wait", trace.WithTimestamp(s.clock.of(began)), trace.WithAttributes(
		attribute.String("retryproxy.wait.reason", what),
		attribute.Float64("retryproxy.wait.duration", took.Seconds())))
}

// End is part of proxy.RequestSpan.
func (s *request) End(e *proxy.TraceEnd) {
	at := s.clock.of(e.At)
	s.endOpen(at)
	if s.span.IsRecording() {
		s.span.SetAttributes(
			attribute.String("retryproxy.outcome", e.Outcome.String()),
			attribute.Int("retryproxy.attempts", e.Attempts))
		if e.Reason != "" {
			s.span.SetAttributes(attribute.String("retryproxy.reason", e.Reason))
		}
		if e.Code > 0 {
			s.span.SetAttributes(attribute.Int("http.response.status_code", e.Code))
		}
		if kind := errorOf(e); kind != "" {
			s.span.SetAttributes(attribute.String("error.type", kind))
			s.span.SetStatus(codes.Error, "")
		}
	}
	s.span.End(trace.WithTimestamp(at))
}

// errorOf is the error.type of a request, "" where there is none: a response below
// 500 that arrived whole.
func errorOf(e *proxy.TraceEnd) string {
	switch {
	case e.Outcome == policy.OutcomeResponseBroken, e.Outcome == policy.OutcomeClientGone:
		return e.Outcome.String()
	case e.Code >= 500:
		return strconv.Itoa(e.Code)
	}
	return ""
}

// endOpen ends the attempt whose answer was being relayed, or that was in flight
// when its client left.
func (s *request) endOpen(at time.Time) {
	if s.open != nil {
		s.open.end(at)
		s.open = nil
	}
}

// attempt is the span of an attempt, kind client.
type attempt struct {
	r    *request
	span trace.Span
}

// Attempt is part of proxy.RequestSpan.
func (s *request) Attempt(a *proxy.TraceAttempt) proxy.AttemptSpan {
	all := append([]attribute.KeyValue{
		attribute.String("url.scheme", a.Scheme),
		attribute.String("url.path", s.path),
	}, s.method...)
	all = append(all, server(a.Host)...)
	if a.Resend > 0 {
		all = append(all, attribute.Int("http.request.resend_count", a.Resend))
	}
	if a.Why != policy.ReasonNone {
		all = append(all, attribute.String("retryproxy.retry.reason", a.Why.String()), attribute.Float64("retryproxy.wait.duration", a.Wait.Seconds()))
	}
	if a.Hedge {
		all = append(all, attribute.Bool("retryproxy.hedge", true))
	}
	if a.Fallback {
		all = append(all, attribute.Bool("retryproxy.fallback", true))
	}
	_, span := s.t.tracer.Start(s.ctx, s.name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(s.clock.of(a.Began)), trace.WithAttributes(all...))
	return &attempt{s, span}
}

// Context is part of proxy.AttemptSpan. A client that is in a span which is not
// recorded here stays the upstream's parent: ours would be one that nobody has.
func (a *attempt) Context() (parent, state string, ok bool) {
	if a.r.client && !a.span.IsRecording() {
		return "", "", false
	}
	parent, state = fields(a.span.SpanContext())
	return parent, state, true
}

// Done is part of proxy.AttemptSpan.
func (a *attempt) Done(d *proxy.TraceAttemptEnd) {
	if a.span.IsRecording() {
		a.describe(d)
	}
	if d.Class == policy.ClassNone && d.Status > 0 {
		a.r.open = a // it ends with its response
		return
	}
	a.end(a.r.clock.of(d.At))
}

func (a *attempt) describe(d *proxy.TraceAttemptEnd) {
	a.span.SetAttributes(attribute.String("retryproxy.class", d.Class.String()))
	a.span.SetAttributes(peer(d.Peer)...)
	if d.Status > 0 {
		a.span.SetAttributes(attribute.Int("http.response.status_code", d.Status))
	}
	if kind := attemptError(d); kind != "" {
		a.span.SetAttributes(attribute.String("error.type", kind))
		a.span.SetStatus(codes.Error, "")
	}
}

// attemptError is the error.type of an attempt.
func attemptError(d *proxy.TraceAttemptEnd) string {
	switch {
	case d.Class == policy.Overtaken:
		return ""
	case d.Status >= 400:
		return strconv.Itoa(d.Status)
	case d.Status > 0:
		return ""
	case d.Left:
		return policy.OutcomeClientGone.String()
	}
	return d.Cause.String()
}

func (a *attempt) end(at time.Time) { a.span.End(trace.WithTimestamp(at)) }

// protocol is the version the client speaks.
func protocol(r *proxy.TraceRequest) string {
	if r.HTTP2 {
		return "2"
	}
	return "1." + strconv.Itoa(r.Minor)
}

// What is taken of a client's texts at most, in bytes: the queue holds thousands of spans.
const (
	maxPath   = 512
	maxName   = 255
	maxMethod = 32
)

// cut is the begin of a text, with what is not UTF-8 replaced: the whole batch
// could not be encoded with it.
func cut(text []byte, most int) string {
	return strings.ToValidUTF8(string(text[:min(len(text), most)]), "\uFFFD")
}

// methodOf gives the span's name and the attributes of a method. One that is not
// registered is _OTHER, so that names are few.
func methodOf(method []byte) (string, []attribute.KeyValue) {
	switch m := string(method); m {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH":
		return m, []attribute.KeyValue{attribute.String("http.request.method", m)}
	}
	return "HTTP", []attribute.KeyValue{
		attribute.String("http.request.method", "_OTHER"),
		attribute.String("http.request.method_original", cut(method, maxMethod)),
	}
}

// server splits an authority.
func server(authority string) []attribute.KeyValue {
	return address("server.address", "server.port", authority)
}

// peer splits "ip:port" or takes a socket's path as it is.
func peer(addr string) []attribute.KeyValue {
	return address("network.peer.address", "network.peer.port", addr)
}

func address(name, port, text string) []attribute.KeyValue {
	if text == "" {
		return nil
	}
	host, p, err := net.SplitHostPort(text)
	if err != nil {
		return []attribute.KeyValue{attribute.String(name, strings.Trim(text, "[]"))}
	}
	n, err := strconv.Atoi(p)
	if err != nil {
		return []attribute.KeyValue{attribute.String(name, host)}
	}
	return []attribute.KeyValue{attribute.String(name, host), attribute.Int(port, n)}
}
