// Package exchange serves one request of a client: the retry loop, the waits, hedging, the
// fallback and the relay of the response. Package proxy reads the request's headers from a
// downstream.Conn and hands both to an Exchange, which the connection reuses for its next request.
//
// The parts of an exchange, each with its own state:
//
//   - Exchange begins and ends the request (exchange.go). It has the retry loop (loop.go), with its
//     decision (decide.go), which ends with the choice of what the client gets (conclude.go,
//     fallback.go).
//   - attempts makes one attempt after another and finds out its result (attempts.go), as far as the
//     retry rules must see the body of the response (firstcontent.go). It is the attempt.Owner of all. race
//     decides about hedges (hedge.go).
//   - sender has the running attempt with its ticket, and what the next one depends on (sender.go).
//   - bufferedResponse keeps a failed response while a better one is sought.
//   - relay sends the response that the client gets, by response.Writer (relay.go, tunnel.go).
//
// memory.go has what all of them must do before a buffer goes back to its pool.
package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/response"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Exchange is one request with its attempts and its response. It belongs to its connection, which
// reuses it for the next request. Only Upload and EndTunnel are safe for concurrent use.
type Exchange struct {
	r        request.Request
	report   report.Report
	sender   sender
	attempts attempts
	buffered bufferedResponse
	relay    relay
	w        response.Writer
}

// Init prepares the exchange of a connection for its first use.
func (x *Exchange) Init(c *downstream.Conn, p *request.Process) {
	r := &x.r
	r.Init(c, p)
	x.report.Init(r)
	x.w.Init(r)
	x.sender.r = r
	x.sender.admitter.Init(&x.attempts, c)
	x.sender.env = attempt.Env{Host: p.Attempts, Buffers: &c.Buffers, Client: r, Owner: &x.attempts}
	x.sender.first.Init(&x.sender.env)
	x.sender.begin()
	x.attempts.s, x.attempts.Request, x.attempts.report, x.attempts.w = &x.sender, r, &x.report, &x.w
	x.attempts.hedge.at = &x.attempts
	x.buffered.s = &x.sender
	x.relay.at = &x.attempts
}

// Begin prepares the exchange for the request that was just parsed.
func (x *Exchange) Begin(set *settings.Settings, now clock.Instant) {
	x.r.Begin(set, now)
	x.r.Conn.BeginRequest(set.WriteTimeout)
	x.w.Begin(x.r.HTTP.Close)
	x.sender.begin()
	x.attempts.hedge.begin()
	x.report.Reset()
}

// EndAfterFault ends the request after a fault of the proxy. It reports whether a request was
// being served.
func (x *Exchange) EndAfterFault() bool {
	x.w.Reset()
	x.attempts.hedge.abort()
	x.sender.abandonTicket(breaker.Abandoned)
	x.sender.att.Drop()
	x.sender.att.StopUpload()
	if !x.report.IsOpen() {
		return false
	}
	x.report.Done(request.End{Outcome: policy.OutcomeResponseBroken}, x.w.BodySent())
	x.end()
	return true
}

// end returns all memory of the exchange except what the next request will use.
func (x *Exchange) end() {
	x.sender.att.Abandon()
	x.r.Body.Arrived()
	x.r.Body.Close()
	x.buffered.drop()
	x.r.DropHeaders()
	x.r.Out.Drop()
	x.w.Release()
}

// Serve handles the parsed request: route, retry loop, response. It reports whether the connection
// can serve another request.
func (x *Exchange) Serve() bool {
	x.r.FindRoute()
	x.report.Begin()
	if x.r.Settings.Tracer != nil {
		x.report.BeginTrace()
	}
	end := x.respond()
	x.report.Done(end, x.w.BodySent())
	if x.w.Resets() {
		x.r.Conn.Abort()
	}
	x.end()
	return x.w.KeepsConnection()
}

// respond sends the client its response, if there is one.
func (x *Exchange) respond() request.End {
	x.r.Out.FindID()
	if why := x.r.Refusal(); why != http1.RefusalNone {
		return x.w.Refuse(why)
	}
	if x.r.IsAnsweredLocally() {
		return x.w.MaxForwards()
	}
	x.r.Prepare()
	return x.run()
}

// RefuseHeaders responds to request headers that broke the rule why.
func (x *Exchange) RefuseHeaders(why http1.Refusal) {
	x.r.Time.Tick()
	x.r.Out.MakeID()
	x.report.Begin()
	end := x.w.Refuse(why)
	x.report.Done(end, x.w.BodySent())
	x.end()
}

// Upload returns the body of the connection's request.
func (x *Exchange) Upload() *request.Body { return &x.r.Body }

// HeadersTimedOut responds to a client whose request headers did not arrive in time.
func (x *Exchange) HeadersTimedOut() {
	x.r.Time.Tick()
	x.w.Close()
	x.r.Out.MakeID()
	x.report.Begin()
	end := x.w.Error(408, policy.OutcomeRequestTimeout, "request_timeout")
	x.report.Done(end, x.w.BodySent())
	x.end()
}

// LastTick returns when the clock was last read for the request, or zero if it was not read yet.
func (x *Exchange) LastTick() clock.Instant { return x.r.Time.Clock }

// Tick reads the clock for the request.
func (x *Exchange) Tick() { x.r.Time.Tick() }

// MustReset reports whether the connection must end with a reset, so that the client cannot
// mistake it for an orderly end.
func (x *Exchange) MustReset() bool { return x.w.Resets() }

// EndedByClient reports whether the request reached an upstream and was then ended by its client.
func (x *Exchange) EndedByClient() bool { return x.r.EndedByClient() }

// WasTunnel reports whether the request became a tunnel, which others may still have.
func (x *Exchange) WasTunnel() bool { return x.w.Upgraded() }

// EndTunnel ends the tunnel of the request in order, if the request is one. It is safe for
// concurrent use.
func (x *Exchange) EndTunnel() { x.relay.endTunnel() }
