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
	proxytrace "github.com/retryproxy/retryproxy/proxy/trace"
)

// request is the span of a request, of kind server.
type request struct {
	t      *Tracing
	span   trace.Span
	ctx    context.Context
	method []attribute.KeyValue
	path   string
	name   string // of the attempts' spans too
	client bool   // the client sent a span context
	clock  wall
	open   *attempt // in flight, or its response is being relayed
}

// Request implements proxytrace.Tracer.
func (t *Tracing) Request(r *proxytrace.Request) proxytrace.RequestSpan {
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

// TraceID implements proxytrace.RequestSpan.
func (s *request) TraceID() string {
	if id := s.span.SpanContext().TraceID(); id.IsValid() {
		return id.String()
	}
	return ""
}

// Recorded implements proxytrace.RequestSpan.
func (s *request) Recorded() bool { return s.span.SpanContext().IsSampled() }

// Waited implements proxytrace.RequestSpan.
func (s *request) Waited(what string, began time.Time, took time.Duration) {
	s.span.AddEvent("retryproxy.wait", trace.WithTimestamp(s.clock.of(began)), trace.WithAttributes(
		attribute.String("retryproxy.wait.reason", what),
		attribute.Float64("retryproxy.wait.duration", took.Seconds())))
}

// End implements proxytrace.RequestSpan.
func (s *request) End(e *proxytrace.End) {
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

// errorOf returns the error.type of a request, "" if there is none: a complete response
// below 500.
func errorOf(e *proxytrace.End) string {
	switch {
	case e.Outcome == policy.OutcomeResponseBroken, e.Outcome == policy.OutcomeStreamCut, e.Outcome == policy.OutcomeClientGone:
		return e.Outcome.String()
	case e.Code >= 500:
		return strconv.Itoa(e.Code)
	}
	return ""
}

// endOpen ends the attempt whose response was being relayed, or that was in flight when its
// client left.
func (s *request) endOpen(at time.Time) {
	if s.open != nil {
		s.open.end(at)
		s.open = nil
	}
}

// attempt is the span of an attempt, of kind client.
type attempt struct {
	r    *request
	span trace.Span
}

// Attempt implements proxytrace.RequestSpan.
func (s *request) Attempt(a *proxytrace.Attempt) proxytrace.AttemptSpan {
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

// Context implements proxytrace.AttemptSpan. If the client sent a span context and our span
// is not recorded, the client's span stays the upstream's parent: ours would be missing in
// the trace.
func (a *attempt) Context() (parent, state string, ok bool) {
	if a.r.client && !a.span.IsRecording() {
		return "", "", false
	}
	parent, state = fields(a.span.SpanContext())
	return parent, state, true
}

// Done implements proxytrace.AttemptSpan.
func (a *attempt) Done(d *proxytrace.AttemptEnd) {
	if a.span.IsRecording() {
		a.describe(d)
	}
	if d.Class == policy.ClassNone && d.Status > 0 {
		a.r.open = a // it ends with its response
		return
	}
	a.end(a.r.clock.of(d.At))
}

func (a *attempt) describe(d *proxytrace.AttemptEnd) {
	a.span.SetAttributes(attribute.String("retryproxy.class", d.Class.String()))
	a.span.SetAttributes(peer(d.Peer)...)
	a.span.SetAttributes(server(d.Host)...)
	if d.Status > 0 {
		a.span.SetAttributes(attribute.Int("http.response.status_code", d.Status))
	}
	if kind := attemptError(d); kind != "" {
		a.span.SetAttributes(attribute.String("error.type", kind))
		a.span.SetStatus(codes.Error, "")
	}
}

// attemptError returns the error.type of an attempt, "" if there is none.
func attemptError(d *proxytrace.AttemptEnd) string {
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

// protocol returns the HTTP version that the client uses.
func protocol(r *proxytrace.Request) string {
	if r.HTTP2 {
		return "2"
	}
	return "1." + strconv.Itoa(r.Minor)
}

// Limits of a client's texts, in bytes: the queue holds thousands of spans.
const (
	maxPath   = 512
	maxName   = 255
	maxMethod = 32
)

// cut returns the start of a text, with invalid UTF-8 replaced: otherwise the whole batch
// could not be encoded.
func cut(text []byte, most int) string {
	return strings.ToValidUTF8(string(text[:min(len(text), most)]), "\uFFFD")
}

// methodOf returns the span's name and the attributes of a method. An unregistered method
// is _OTHER, to limit the number of names.
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

// server returns the attributes of an authority.
func server(authority string) []attribute.KeyValue {
	return address("server.address", "server.port", authority)
}

// peer returns the attributes of "ip:port" or a socket's path.
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
