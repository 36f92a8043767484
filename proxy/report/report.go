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
func (r *Report) Init(of *request.Request) { r.Request = of }

// Reset prepares for another request.
func (r *Report) Reset() {
	r.AttemptLog.reset()
	r.firstEnd, r.LastEnd, r.relayedAt = 0, 0, 0
	r.Failed, r.Exposed, r.wouldRetry = false, false, false
}

// Queued reports a wait in a queue that began at began and ends now.
func (r *Report) Queued(began clock.Instant) {
	r.observer.Queued(r.Request.Time.Waited(began))
	r.Waited(waitQueued, began)
}

// Begin reports to the route's observer that the request began. Done must then be called exactly
// once.
func (r *Report) Begin() {
	r.open = true
	r.observer = settings.NoObserver{} // in case the route's observer panics
	r.observer = r.Request.Route.NewObserver()
	r.observer.RequestBegan()
}

// Retry counts a retry that is sent now. d decided on it.
func (r *Report) Retry(d policy.Decision) {
	if r.Trace.Request != nil {
		r.Trace.Why, r.Trace.Wait = d.Why, d.Wait
	}
	r.observer.Retry(d.Why)
}

// WaitBegan reports that the wait before a retry begins. WaitEnded must follow.
func (r *Report) WaitBegan() { r.observer.WaitBegan() }

// WaitEnded reports that the wait before a retry ended, and how long it took.
func (r *Report) WaitEnded(waited time.Duration) { r.observer.WaitEnded(waited) }

// Hedged counts a hedge that was sent.
func (r *Report) Hedged() { r.observer.Hedged() }

// HedgeWon counts a hedge whose good response is relayed.
func (r *Report) HedgeWon() { r.observer.HedgeWon() }

// FallbackFailed counts a fallback upstream that had no better response.
func (r *Report) FallbackFailed() { r.observer.FallbackFailed() }

// TokensUsed counts what a response said that it used, if it did.
func (r *Report) TokensUsed(used tokens.Count, fate tokens.Fate) {
	if used.Any() {
		r.observer.TokensUsed(used, fate)
	}
}

// Relayed says that the response was relayed whole, and returns when that was.
func (r *Report) Relayed() clock.Instant {
	r.relayedAt = r.Request.Time.Tick()
	return r.relayedAt
}

// at converts a time of the request.
func (r *Report) at(t clock.Instant) time.Time { return r.Request.Process.Clock.At(t) }

// IsOpen reports whether Begin was called and Done was not.
func (r *Report) IsOpen() bool { return r.open }

// CountDryRun counts the request's first retry that would be made, in a dry run, for the reason why.
func (r *Report) CountDryRun(why policy.Reason) {
	if !r.wouldRetry {
		r.wouldRetry = true
		r.observer.WouldRetry(why)
	}
}

// HasCountedDryRun reports whether a retry was counted that is not made.
func (r *Report) HasCountedDryRun() bool { return r.wouldRetry }

// Done reports what the request came to, to the observer and the logs, once. sent is how many bytes of the
// response's body were written.
func (r *Report) Done(e request.End, sent int64) {
	r.open = false
	now := r.relayedAt // read a moment ago
	if now.IsZero() {
		now = r.Request.Time.Tick()
	}
	took := now.Sub(r.Request.Time.Began)
	if e.Outcome == policy.OutcomeUpgraded {
		took = r.LastEnd.Sub(r.Request.Time.Began) // until the response: the lifetime of a tunnel is no latency
	}
	var added time.Duration
	if r.Failed {
		added = r.LastEnd.Sub(r.firstEnd)
	}
	r.observer.RequestDone(r.Request.HTTP.Method, e.Status, e.Outcome, took, added, r.Request.Attempts())
	if r.Request.Settings.AccessLog || worthALine(e.Outcome) {
		r.logDone(e, now.Sub(r.Request.Time.Began), sent)
	}
	r.keep(e, now, took)
	if r.Trace.Request != nil {
		r.endTrace(e, took)
	}
}

// AttemptDone ends the attempt a of the exchange, with the result res.
func (r *Report) AttemptDone(a *attempt.Attempt, res *policy.Result, class policy.Class) {
	at := r.Record(a, res, class)
	if r.firstEnd.IsZero() {
		r.firstEnd = at
	}
	r.LastEnd = r.Request.Time.Clock
	r.Failed = r.Failed || class != policy.ClassNone && class != policy.Overtaken
}

// Record reports an attempt that ended with the result res to the observer, the log and the trace. It
// returns when the attempt ended.
func (r *Report) Record(a *attempt.Attempt, res *policy.Result, class policy.Class) (at clock.Instant) {
	code := 0
	if res.Cause == policy.CauseStatus {
		code = res.Status
	}
	if class == policy.ClassNone && code >= 500 {
		class = policy.Unknown // no retry, since RETRYPROXY_RETRY_ON does not list it, but no success either
	}
	r.Exposed = r.Exposed || class.Exposes()
	e := a.End(res.Cause, r.Request.Time.Clock)
	took := e.At.Sub(e.Began)
	r.observer.AttemptDone(class, code, took)
	r.AttemptLog.attempted(step{
		Began: inMicros(e.Began.Sub(r.Request.Time.Began)), Took: inMicros(took), Status: int16(code), Cause: res.Cause, class: class,
		Addr: e.Addr, Dial: e.DialError,
	})
	r.endSpan(&e, res, class)
	return e.At
}

// RecordFallback reports the attempt at a fallback upstream that ended with the result res. It
// does not count among a route's attempts.
func (r *Report) RecordFallback(a *attempt.Attempt, res *policy.Result, class policy.Class) {
	r.LastEnd = r.Request.Time.Tick()
	e := a.End(res.Cause, r.LastEnd)
	r.AttemptLog.attempted(step{
		Began: inMicros(e.Began.Sub(r.Request.Time.Began)), Took: inMicros(r.LastEnd.Sub(e.Began)), Status: int16(res.Status), Cause: res.Cause,
		Addr: e.Addr, Dial: e.DialError,
	})
	r.Exposed = r.Exposed || class.Exposes()
	r.endSpan(&e, res, class)
}

// keep passes the request to the journal, if the journal wants it.
func (r *Report) keep(end request.End, now clock.Instant, took time.Duration) {
	j := r.Request.Settings.Journal
	if j == nil || !j.Wants(r.Request.Process.Clock.UnixNano(now), took, end.Outcome) {
		return
	}
	e := settings.Ended{
		Route: r.Request.Route.Name, Method: r.Request.HTTP.Method, Path: r.Request.HTTP.Path, RequestID: r.Request.Out.ID, Began: r.at(r.Request.Time.Began), Took: took,
		Code: end.Status, Outcome: end.Outcome, Attempts: r.Request.Attempts(), Retries: r.Request.Retries(), Steps: make([]settings.Step, 0, trailLength),
	}
	for _, s := range r.AttemptLog.steps[:r.AttemptLog.n] {
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
func (r *Report) BeginTrace() {
	parent, state := forward.TraceContext(r.Request.HTTP)
	peer := r.Request.Conn.Peer()
	r.Trace.Request = r.Request.Settings.Tracer.Request(&trace.Request{
		Route: r.Request.Route.Name, Method: r.Request.HTTP.Method, Path: r.Request.HTTP.Path, Authority: r.Request.HTTP.Authority,
		Minor: r.Request.HTTP.Minor, HTTP2: r.Request.Conn.Stream != nil, Scheme: peer.Proto(), Peer: peer.Text,
		Parent: parent, State: state, Began: r.at(r.Request.Time.Began),
	})
}

// AttemptSpan begins the span of the request's attempt with that number, which begins at the time at. It
// returns nil if the request is not traced.
func (r *Report) AttemptSpan(number int, at clock.Instant, hedge bool) trace.AttemptSpan {
	t := &r.Trace
	if t.Request == nil {
		return nil
	}
	target := &r.Request.Dest.Upstream
	began := trace.Attempt{Began: r.at(at), Resend: number - 1, Hedge: hedge, Fallback: r.Request.Dest.IsFallback, Host: target.Host, Scheme: "http"}
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
func (r *Report) EndSpan(a *attempt.Attempt, res *policy.Result, class policy.Class) {
	e := a.End(res.Cause, r.Request.Time.Clock)
	r.endSpan(&e, res, class)
}

func (r *Report) endSpan(e *attempt.Ended, res *policy.Result, class policy.Class) {
	if e.Span == nil {
		return
	}
	end := trace.AttemptEnd{At: r.at(e.At), Cause: res.Cause, Class: class, Left: !r.Request.ClientStaysOn(), Peer: e.Addr, Host: e.Endpoint.Host()}
	if res.Cause == policy.CauseStatus {
		end.Status = res.Status
	}
	e.Span.Done(&end)
}

// Waited reports a wait that began at began and ends now.
func (r *Report) Waited(what string, began clock.Instant) {
	if r.Trace.Request != nil {
		r.Trace.Request.Waited(what, r.at(began), r.Request.Time.Since(began))
	}
}

const waitQueued = "queued"

// endTrace ends the request's span and reports its trace to the observer.
func (r *Report) endTrace(e request.End, took time.Duration) {
	if r.Trace.Request.Recorded() {
		r.observer.Traced(r.Trace.Request.TraceID(), e.Status, took)
	}
	r.Trace.Request.End(&trace.End{At: r.at(r.Request.Time.Began).Add(took), Code: e.Status, Outcome: e.Outcome, Reason: e.Reason, Attempts: r.Request.Attempts()})
	r.Trace = tracing{}
}
