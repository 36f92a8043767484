// Package report reports the progress and the end of a request to observers, the log, the journal
// and traces: once per attempt, and exactly once per request.
package report

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// Report reports the progress and the end of a request to observers, the log, the journal and
// traces. It is not safe for concurrent use.
type Report struct {
	Request *request.Request // set by Init

	observer   settings.Observer // of this request, after Begin
	AttemptLog attemptLog
	Trace      tracing

	firstEnd  clock.Instant // of the first attempt
	LastEnd   clock.Instant
	relayedAt clock.Instant // when the response was relayed whole; zero: not yet

	open       bool // Begin was called and Done was not
	Failed     bool // an attempt failed
	Exposed    bool // the upstream may have done the work; see policy.Class.Exposes
	wouldRetry bool // counted, in a dry run
}

// Init prepares the report of a connection for its first use.
func (p *Report) Init(r *request.Request) { p.Request = r }

// Reset prepares for another request.
func (p *Report) Reset() {
	p.AttemptLog.reset()
	p.firstEnd, p.LastEnd, p.relayedAt = 0, 0, 0
	p.Failed, p.Exposed, p.wouldRetry = false, false, false
}

// Queued reports a wait in a queue that began at began and ends now.
func (p *Report) Queued(began clock.Instant) {
	p.observer.Queued(p.Request.Time.Waited(began))
	p.Waited(waitQueued, began)
}

// Begin reports to the route's observer that the request began. Done must then be called exactly
// once.
func (p *Report) Begin() {
	p.open = true
	p.observer = settings.NoObserver{} // in case the route's observer panics
	p.observer = p.Request.Route.NewObserver()
	p.observer.RequestBegan()
}

// Retry counts a retry that is sent now. d decided on it.
func (p *Report) Retry(d policy.Decision) {
	if p.Trace.Request != nil {
		p.Trace.Why, p.Trace.Wait = d.Why, d.Wait
	}
	p.observer.Retry(d.Why)
}

// WaitBegan reports that the wait before a retry begins. WaitEnded must follow.
func (p *Report) WaitBegan() { p.observer.WaitBegan() }

// WaitEnded reports that the wait before a retry ended, and how long it took.
func (p *Report) WaitEnded(waited time.Duration) { p.observer.WaitEnded(waited) }

// Hedged counts a hedge that was sent.
func (p *Report) Hedged() { p.observer.Hedged() }

// HedgeWon counts a hedge whose good response is relayed.
func (p *Report) HedgeWon() { p.observer.HedgeWon() }

// FallbackFailed counts a fallback upstream that had no better response.
func (p *Report) FallbackFailed() { p.observer.FallbackFailed() }

// TokensUsed counts what a response said that it used, if it did.
func (p *Report) TokensUsed(used tokens.Count, fate tokens.Fate) {
	if used.Any() {
		p.observer.TokensUsed(used, fate)
	}
}

// Relayed says that the response was relayed whole, and returns when that was.
func (p *Report) Relayed() clock.Instant {
	p.relayedAt = p.Request.Time.Tick()
	return p.relayedAt
}

// at converts a time of the request.
func (p *Report) at(t clock.Instant) time.Time { return p.Request.Process.Clock.At(t) }

// IsOpen reports whether Begin was called and Done was not.
func (p *Report) IsOpen() bool { return p.open }

// CountDryRun counts the request's first retry that would be made, in a dry run, for the reason why.
func (p *Report) CountDryRun(why policy.Reason) {
	if !p.wouldRetry {
		p.wouldRetry = true
		p.observer.WouldRetry(why)
	}
}

// HasCountedDryRun reports whether a retry was counted that is not made.
func (p *Report) HasCountedDryRun() bool { return p.wouldRetry }

// Done reports what the request came to, to the observer and the logs, once. sent is how many bytes of the
// response's body were written.
func (p *Report) Done(e request.End, sent int64) {
	p.open = false
	now := p.relayedAt // read a moment ago
	if now.IsZero() {
		now = p.Request.Time.Tick()
	}
	took := now.Sub(p.Request.Time.Began)
	if e.Outcome == policy.OutcomeUpgraded {
		took = p.LastEnd.Sub(p.Request.Time.Began) // until the response: the lifetime of a tunnel is no latency
	}
	var added time.Duration
	if p.Failed {
		added = p.LastEnd.Sub(p.firstEnd)
	}
	p.observer.RequestDone(p.Request.HTTP.Method, e.Status, e.Outcome, took, added, p.Request.Attempts())
	if p.Request.Settings.AccessLog || worthALine(e.Outcome) {
		p.logDone(e, now.Sub(p.Request.Time.Began), sent)
	}
	p.keep(e, now, took)
	if p.Trace.Request != nil {
		p.endTrace(e, took)
	}
}

// AttemptDone ends the attempt a of the exchange, with the result res.
func (p *Report) AttemptDone(a *attempt.Attempt, res *policy.Result, class policy.Class) {
	at := p.Record(a, res, class)
	if p.firstEnd.IsZero() {
		p.firstEnd = at
	}
	p.LastEnd = p.Request.Time.Clock
	p.Failed = p.Failed || class != policy.ClassNone && class != policy.Overtaken
}

// Record reports an attempt that ended with the result res to the observer, the log and the trace. It
// returns when the attempt ended.
func (p *Report) Record(a *attempt.Attempt, res *policy.Result, class policy.Class) (at clock.Instant) {
	code := 0
	if res.Cause == policy.CauseStatus {
		code = res.Status
	}
	if class == policy.ClassNone && code >= 500 {
		class = policy.Unknown // no retry, since RETRYPROXY_RETRY_ON does not list it, but no success either
	}
	p.Exposed = p.Exposed || class.Exposes()
	e := a.End(res.Cause, p.Request.Time.Clock)
	took := e.At.Sub(e.Began)
	p.observer.AttemptDone(class, code, took)
	p.AttemptLog.attempted(step{
		Began: inMicros(e.Began.Sub(p.Request.Time.Began)), Took: inMicros(took), Status: int16(code), Cause: res.Cause, class: class,
		Addr: e.Addr, Dial: e.DialError,
	})
	p.endSpan(&e, res, class)
	return e.At
}

// RecordFallback reports the attempt at a fallback upstream that ended with the result res. It
// does not count among a route's attempts.
func (p *Report) RecordFallback(a *attempt.Attempt, res *policy.Result, class policy.Class) {
	p.LastEnd = p.Request.Time.Tick()
	e := a.End(res.Cause, p.LastEnd)
	p.AttemptLog.attempted(step{
		Began: inMicros(e.Began.Sub(p.Request.Time.Began)), Took: inMicros(p.LastEnd.Sub(e.Began)), Status: int16(res.Status), Cause: res.Cause,
		Addr: e.Addr, Dial: e.DialError,
	})
	p.Exposed = p.Exposed || class.Exposes()
	p.endSpan(&e, res, class)
}

// keep passes the request to the journal, if the journal wants it.
func (p *Report) keep(end request.End, now clock.Instant, took time.Duration) {
	j := p.Request.Settings.Journal
	if j == nil || !j.Wants(p.Request.Process.Clock.UnixNano(now), took, end.Outcome) {
		return
	}
	e := settings.Ended{
		Route: p.Request.Route.Name, Method: p.Request.HTTP.Method, Path: p.Request.HTTP.Path, RequestID: p.Request.Out.ID, Began: p.at(p.Request.Time.Began), Took: took,
		Code: end.Status, Outcome: end.Outcome, Attempts: p.Request.Attempts(), Retries: p.Request.Retries(), Steps: make([]settings.Step, 0, trailLength),
	}
	for _, s := range p.AttemptLog.steps[:p.AttemptLog.n] {
		e.Steps = append(e.Steps, settings.Step{Began: s.Began.duration(), Took: s.Took.duration(), Status: int(s.Status), Cause: s.Cause, Class: s.class, Addr: s.Addr, Dial: s.Dial})
	}
	j.Keep(&e)
}

// tracing holds the spans of an exchange.
type tracing struct {
	Request trace.RequestSpan // nil: tracing is off
	Why     policy.Reason
	Wait    time.Duration
}

// BeginTrace begins the request's span.
func (p *Report) BeginTrace() {
	parent, state := forward.TraceContext(p.Request.HTTP)
	peer := p.Request.Conn.Peer()
	p.Trace.Request = p.Request.Settings.Tracer.Request(&trace.Request{
		Route: p.Request.Route.Name, Method: p.Request.HTTP.Method, Path: p.Request.HTTP.Path, Authority: p.Request.HTTP.Authority,
		Minor: p.Request.HTTP.Minor, HTTP2: p.Request.Conn.Stream != nil, Scheme: peer.Proto(), Peer: peer.Text,
		Parent: parent, State: state, Began: p.at(p.Request.Time.Began),
	})
}

// AttemptSpan begins the span of the request's attempt with that number, which begins at the time at. It
// returns nil if the request is not traced.
func (p *Report) AttemptSpan(number int, at clock.Instant, hedge bool) trace.AttemptSpan {
	t := &p.Trace
	if t.Request == nil {
		return nil
	}
	target := &p.Request.Dest.Upstream
	began := trace.Attempt{Began: p.at(at), Resend: number - 1, Hedge: hedge, Fallback: p.Request.Dest.IsFallback, Host: target.Host, Scheme: "http"}
	if !target.OneHost() {
		began.Host = ""
	}
	if target.TLS != nil {
		began.Scheme = "https"
	}
	if !hedge && !began.Fallback {
		began.Why, began.Wait = t.Why, t.Wait
	}
	return t.Request.Attempt(&began)
}

// EndSpan ends an attempt with the result res that only its span shows.
func (p *Report) EndSpan(a *attempt.Attempt, res *policy.Result, class policy.Class) {
	e := a.End(res.Cause, p.Request.Time.Clock)
	p.endSpan(&e, res, class)
}

func (p *Report) endSpan(e *attempt.Ended, res *policy.Result, class policy.Class) {
	if e.Span == nil {
		return
	}
	end := trace.AttemptEnd{At: p.at(e.At), Cause: res.Cause, Class: class, Left: !p.Request.ClientStaysOn(), Peer: e.Addr, Host: e.Endpoint.Host()}
	if res.Cause == policy.CauseStatus {
		end.Status = res.Status
	}
	e.Span.Done(&end)
}

// Waited reports a wait that began at began and ends now.
func (p *Report) Waited(what string, began clock.Instant) {
	if p.Trace.Request != nil {
		p.Trace.Request.Waited(what, p.at(began), p.Request.Time.Since(began))
	}
}

const waitQueued = "queued"

// endTrace ends the request's span and reports its trace to the observer.
func (p *Report) endTrace(e request.End, took time.Duration) {
	if p.Trace.Request.Recorded() {
		p.observer.Traced(p.Trace.Request.TraceID(), e.Status, took)
	}
	p.Trace.Request.End(&trace.End{At: p.at(p.Request.Time.Began).Add(took), Code: e.Status, Outcome: e.Outcome, Reason: e.Reason, Attempts: p.Request.Attempts()})
	p.Trace = tracing{}
}
