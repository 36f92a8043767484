package report

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// tracing is what an exchange knows of its spans.
type tracing struct {
	Request trace.RequestSpan // nil: off
	Why     policy.Reason
	Wait    time.Duration
}

// BeginTrace begins the request's span.
func (p *Report) BeginTrace() {
	parent, state := forward.TraceContext(p.Request.HTTP)
	p.Trace.Request = p.Request.Settings.Tracer.Request(&trace.Request{
		Route: p.Request.Route.Name, Method: p.Request.HTTP.Method, Path: p.Request.HTTP.Path, Authority: p.Request.HTTP.Authority,
		Minor: p.Request.HTTP.Minor, HTTP2: p.Request.Conn.Stream != nil, Scheme: p.Request.Conn.Peer.Proto(), Peer: p.Request.Conn.Peer.Text,
		Parent: parent, State: state, Began: p.Request.Process.Clock.At(p.Request.Began),
	})
}

// traceAttempt begins the span of an attempt that begins.
func (p *Report) AttemptSpan(a *attempt.Attempt, hedge bool) trace.AttemptSpan {
	t := &p.Trace
	if t.Request == nil {
		return nil
	}
	target := &p.Request.Dest.Upstream
	began := trace.Attempt{Began: p.Request.Process.Clock.At(a.Began), Resend: int(a.Number) - 1, Hedge: hedge, Fallback: p.Request.Dest.IsFallback, Host: target.Host, Scheme: "http"}
	if target.TLS != nil {
		began.Scheme = "https"
	}
	if !hedge && !began.Fallback {
		began.Why, began.Wait = t.Why, t.Wait
	}
	return t.Request.Attempt(&began)
}

// EndSpan ends the span of an attempt with the result res.
func (p *Report) EndSpan(a *attempt.Attempt, res *policy.Attempt, class policy.Class) {
	if a.Span == nil {
		return
	}
	e := trace.AttemptEnd{At: p.Request.Process.Clock.At(p.Request.Clock), Cause: res.Cause, Class: class, Left: !p.Request.ClientStaysOn(), Peer: a.Addr}
	if res.Cause == policy.CauseStatus {
		e.Status = res.Status
	}
	a.Span.Done(&e)
	a.Span = nil
}

// traceWait tells of a wait that began at began and is over now.
func (p *Report) Waited(what string, began clock.Instant) {
	if p.Trace.Request != nil {
		p.Trace.Request.Waited(what, p.Request.Process.Clock.At(began), p.Request.Clock.Sub(began))
	}
}

const waitQueued = "queued"

// endTrace ends the request's span and tells the observer of it.
func (p *Report) endTrace(code int, o policy.Outcome, took time.Duration) {
	if p.Trace.Request.Recorded() {
		p.Observer.Traced(p.Trace.Request.TraceID(), code, took)
	}
	p.Trace.Request.End(&trace.End{At: p.Request.Process.Clock.At(p.Request.Began).Add(took), Code: code, Outcome: o, Reason: p.Reason, Attempts: p.Request.Attempts})
	p.Trace = tracing{}
}
