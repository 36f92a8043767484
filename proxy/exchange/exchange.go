package exchange

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Exchange is one request with its attempts and its response. It belongs to its
// connection, which reuses it for the next request.
type Exchange struct {
	request.Request
	report report.Report

	sender
	hedge race
	requestState

	buffered bufferedResponse
	splice   io.LimitedReader // of the response body
	w        responseWriter

	upgraded atomic.Pointer[tunnel] // what an upgrade became
}

func (x *Exchange) Init(c *downstream.Conn, p *request.Process) {
	x.Conn, x.HTTP, x.Process = c, &c.Request, p
	c.Spans = x
	x.buffered.x, x.adm.x = x, x
	x.first.Host, x.first.Buffers = &p.Attempts, &c.Buffers
	r := &x.Request
	x.report.Request, x.w.r, x.Body.Of = r, r, r
	x.current = current{r: r, report: &x.report, att: &x.first}
	x.adm.current, x.upload.current, x.hedge.sender = &x.current, &x.current, &x.sender
	x.Body.Pump = &x.upload.Pump
	x.adm.waiter.Owner = c
}

// Begin prepares the exchange for the request that was just parsed.
func (x *Exchange) Begin(set *settings.Settings, now clock.Instant) {
	x.requestState, x.Facts = requestState{}, request.Facts{}
	x.Settings, x.Began, x.Clock = set, now, now
	x.Conn.WriteTimeout = set.WriteTimeout
	x.HeaderNames = http1.HeaderNamesOf(x.HTTP.Headers)
	x.GRPC = x.Conn.Stream != nil && x.IsGRPCCall()
	x.Route, x.Dest = set.DefaultRoute, set.DefaultRoute
	x.w.reset(x.HTTP.Close)
	x.avoid, x.freeRetryUsed, x.lastAttempt = "", false, false
	x.hedge.hedgeState = hedgeState{}
	x.att = &x.first
	x.att.Throttled, x.att.Spliced, x.att.Began = false, false, 0
	if x.ClientEnd.Load() != request.ClientPresent { // reading costs less than writing
		x.ClientEnd.Store(request.ClientPresent)
	}
	x.report.Reset()
	x.adm.requestAdmission = requestAdmission{}
}

// EndAfterFault ends the request after a fault of the proxy. It reports whether one was being served.
func (x *Exchange) EndAfterFault() bool {
	x.w.mustReset = true
	x.hedge.abort()
	x.abandonPermit(breaker.Abandoned)
	x.dropUpstream()
	x.upload.stop()
	if !x.report.Open {
		return false
	}
	x.report.Done(0, policy.OutcomeResponseBroken)
	x.end()
	return true
}

// end returns all memory of the exchange except what the next request will use.
func (x *Exchange) end() {
	x.Body.Close()
	x.att.Resp.Detach() // it may point into the buffered response
	x.buffered.drop()
	x.att.Body.Release()
	x.putHead()
	if x.RequestHeaders != nil {
		x.Conn.Buffers.Put(x.RequestHeaders)
	}
	x.Conn.Buffers.Put(x.w.buf)
	x.RequestHeaders, x.w.buf = nil, nil
}

// Serve handles the parsed request: route, retry loop, response. It reports whether the
// connection can serve another request.
func (x *Exchange) Serve() bool {
	x.Route = x.Settings.Find(x.Conn.Listener, x.HTTP)
	x.Dest = x.Route
	x.report.Open = true
	x.report.Begin()
	if x.Settings.Tracer != nil {
		x.report.BeginTrace()
	}
	code, outcome := x.prepareAndRun()
	x.report.Done(code, outcome)
	if x.w.mustReset {
		x.Conn.Abort()
	}
	x.end()
	return !x.w.mustClose && !x.w.mustReset
}

// LastTick returns the last time that the clock was read for the request; zero if there was none yet.
func (x *Exchange) LastTick() clock.Instant { return x.Clock }

// PiecesSent returns how many pieces of request bodies were sent upstream. Anyone may ask.
func (x *Exchange) PiecesSent() uint32 { return uint32(x.upload.pieces.Load()) }

// MustReset reports whether the connection has to end such that the client cannot take it for an orderly end.
func (x *Exchange) MustReset() bool { return x.w.mustReset }

// RefuseHeaders responds to request headers that broke a rule.
func (x *Exchange) RefuseHeaders(why http1.Refusal) {
	x.Tick()
	x.ID = forward.AppendRandomID(x.IDText[:0])
	x.report.Begin()
	x.report.Done(x.refuse(why))
	x.end()
}

// HeadersTimedOut responds to a client whose request headers did not arrive in time.
func (x *Exchange) HeadersTimedOut() {
	x.Tick()
	x.w.mustClose = true
	x.ID = forward.AppendRandomID(x.IDText[:0])
	x.report.Begin()
	x.report.Done(x.respondError(408, policy.OutcomeRequestTimeout, "request_timeout"))
	x.end()
}

func (x *Exchange) prepareAndRun() (int, policy.Outcome) {
	x.ID = forward.RequestID(x.HTTP, x.IDText[:0])
	if why := x.Refusal(); why != http1.RefusalNone {
		return x.refuse(why)
	}
	if x.IsAnsweredLocally() {
		return x.respondToMaxForwards()
	}
	x.Route.UpstreamState.RetryBudget.Request(x.Process.Clock.Since(x.Began))
	x.prepare()
	return x.run()
}

// prepare fixes what the retry rules need to know about the request.
func (x *Exchange) prepare() {
	r := x.Route
	x.Body.Reset(x.HTTP.Body)
	x.Conn.SizeNextRead(x.HTTP.Body)
	x.ExpectsContinue = x.HTTP.ExpectContinue && !x.Body.Ended
	if r.GenerateKey {
		x.GeneratedKey = x.IdempotencyKey()
	}
	x.Safe = r.Policy.Retryable(x.HTTP.Method, r.GenerateKey || x.Get(http1.IdempotencyKey) != nil)
	x.MaxRetries, x.EarlierAttempts = r.Policy.MaxRetries, 0
	if x.HeaderNames.HasAny(request.AttemptCountHeaders) {
		x.ReadEarlierAttempts()
	}
	if x.HeaderNames.HasAny(forward.DeadlineHeaderNames) {
		x.ReadClientDeadline()
	}
	if x.Body.Framing.Kind == http1.BodyChunked {
		x.DetachHeaders(buffer.Medium)
	}
	if x.Body.Ended {
		x.StartClock(x.Began)
	}
}

// EndedByClient reports whether the request reached an upstream, or was on its way
// there, and was then ended by its client in whatever way.
func (x *Exchange) EndedByClient() bool {
	end := x.ClientEnd.Load()
	switch {
	case x.Attempts == 0:
		return false
	case x.Conn.Stream.ResponseComplete():
		return end == request.ClientBodyBroken
	}
	return end == request.ClientBodyBroken || x.Conn.Stream.ClientGone() || x.Conn.Stream.BodyBroken()
}

// requestState is how far a request has come. Its zero value is that of one just begun.
type requestState struct {
	stream heldStream // of the running attempt
	wait   time.Duration
}
