package report

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Report tells observers, the log, the journal and traces how a request goes and how it ended.
type Report struct {
	Request *request.Request

	Observer   settings.Observer // of this request, after begin
	AttemptLog attemptLog
	Trace      tracing
	Reason     string // of a refusal or a failure, for the logs

	FirstEnd  clock.Instant // of an attempt
	LastEnd   clock.Instant
	RelayedAt clock.Instant // when the response was relayed whole; zero: not yet

	Open       bool // the observer was told of the begin and not yet of the end
	Failed     bool // an attempt did
	Exposed    bool // the upstream may have done the work; see policy.Class.Exposes
	WouldRetry bool // counted, in a dry run
}

// Reset prepares for another request.
func (p *Report) Reset() {
	p.AttemptLog.reset()
	p.Reason, p.FirstEnd, p.LastEnd, p.RelayedAt = "", 0, 0, 0
	p.Failed, p.Exposed, p.WouldRetry = false, false, false
}

// Queued tells of a wait in a queue that began at began and is over now.
func (p *Report) Queued(began clock.Instant) {
	p.Observer.Queued(p.Request.Tick().Sub(began))
	p.Waited(waitQueued, began)
}

// startObserving tells the observer of the route that the request began. done is then
// called exactly once.
func (p *Report) Begin() {
	p.Observer = settings.NoObserver{} // in case that of the route panics
	p.Observer = p.Request.Route.NewObserver()
	p.Observer.RequestBegan()
}

// Done reports the request to the observer and the logs, once.
func (p *Report) Done(code int, o policy.Outcome) {
	p.Open = false
	now := p.RelayedAt // a moment ago
	if now.IsZero() {
		now = p.Request.Tick()
	}
	took := now.Sub(p.Request.Began)
	if o == policy.OutcomeUpgraded {
		took = p.LastEnd.Sub(p.Request.Began) // until the response: the life of a tunnel is no latency
	}
	var added time.Duration
	if p.Failed {
		added = p.LastEnd.Sub(p.FirstEnd)
	}
	p.Observer.RequestDone(p.Request.HTTP.Method, code, o, took, added, p.Request.Attempts)
	p.logDone(code, o, now.Sub(p.Request.Began))
	p.keep(code, o, now, took)
	if p.Trace.Request != nil {
		p.endTrace(code, o, took)
	}
}

// AttemptDone ends the attempt a of the exchange, with the result res.
func (p *Report) AttemptDone(a *attempt.Attempt, res *policy.Attempt, class policy.Class) {
	if p.FirstEnd.IsZero() {
		p.FirstEnd = p.Request.Clock
	}
	p.LastEnd = p.Request.Clock
	if !p.Request.ClientStaysOn() {
		a.Throttled = false // it says nothing about the upstream
	}
	p.Failed = p.Failed || class != policy.ClassNone && class != policy.Overtaken
	p.Record(a, res, class)
}

// Record reports an attempt that ended with the result res to the observer, client-side
// throttling, the log and the trace.
func (p *Report) Record(a *attempt.Attempt, res *policy.Attempt, class policy.Class) {
	code := 0
	if res.Cause == policy.CauseStatus {
		code = res.Status
	}
	if a.Throttled {
		a.Throttled = false
		if accepted, known := res.UpstreamAccepted(); known {
			p.Request.Dest.UpstreamState.Throttler.Done(accepted)
		}
	}
	p.Exposed = p.Exposed || class.Exposes()
	took := p.Request.Clock.Sub(a.Began)
	p.Observer.AttemptDone(class, code, took)
	p.AttemptLog.attempted(step{
		Began: inMicros(a.Began.Sub(p.Request.Began)), Took: inMicros(took), Status: int16(code), Cause: res.Cause, class: class,
		Addr: a.Addr, Dial: a.DialErrOf(res),
	})
	p.EndSpan(a, res, class)
	a.Began = 0
}

// DrawFault draws a fault and tells it.
func (p *Report) DrawFault() policy.Fault {
	f := p.Request.Route.FaultInjection.Draw(p.Request.Settings.FaultRand())
	switch {
	case f.Status != 0:
		p.Observer.FaultInjected(policy.FaultStatus)
	case f.Reset:
		p.Observer.FaultInjected(policy.FaultReset)
	}
	if f.Delay > 0 {
		p.Observer.FaultInjected(policy.FaultDelay)
	}
	return f
}

// RecordFallback reports the attempt at a fallback upstream that ended with the result res. It counts among no
// route's attempts.
func (p *Report) RecordFallback(a *attempt.Attempt, res *policy.Attempt, class policy.Class) {
	p.LastEnd = p.Request.Now()
	p.AttemptLog.attempted(step{
		Began: inMicros(a.Began.Sub(p.Request.Began)), Took: inMicros(p.LastEnd.Sub(a.Began)), Status: int16(res.Status), Cause: res.Cause,
		Addr: a.Addr, Dial: a.DialErrOf(res),
	})
	p.Exposed = p.Exposed || class.Exposes()
	p.Request.Tick()
	p.EndSpan(a, res, class)
	a.Began = 0
}
