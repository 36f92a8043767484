package exchange

import (
	"context"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/response"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// attempts makes the attempts of a request one by one and finds out their results. It is the
// attempt.Owner of them all, and the admission.Requester of their tickets.
type attempts struct {
	s *sender
	*request.Request
	report *report.Report
	w      *response.Writer
	hedge  race
	stream heldStream // of the running attempt
}

// running returns the attempt that runs, or ran last.
func (at *attempts) running() *attempt.Attempt { return at.s.att }

// begin prepares the attempt, which has its permit, for the n-th send of the request. It begins when the
// request began, or when the wait before it ended.
func (at *attempts) begin(n int) {
	at.stream = heldStream{}
	if n > 1 {
		at.ContinueClient()
	}
	after := at.hedge.arm()
	at.running().Begin(n, at.Time.Clock, at.report.AttemptSpan(n, at.Time.Clock, false), at.s.options(n, after))
}

// make makes the attempt and sets res to the result. If fresh is set, it dials a new connection.
func (at *attempts) make(res *policy.Result, fresh bool) {
	at.received(res, at.s.connectAndSend(fresh))
}

// resume continues an attempt that timed out if no retry is possible. The attempt then has all the
// time that is left.
func (at *attempts) resume(res *policy.Result) {
	at.received(res, at.running().Resume())
}

// received sets res to the result of the attempt, which may have a hedge. cause is how reading its
// headers ended.
func (at *attempts) received(res *policy.Result, cause policy.Cause) {
	if at.hedge.running != nil {
		at.raceHedge(res, cause)
		return
	}
	at.evaluate(res, cause)
}

// evaluate sets res to the result of the attempt. cause is how reading its headers ended.
func (at *attempts) evaluate(res *policy.Result, cause policy.Cause) {
	*res = policy.Result{Cause: cause}
	if cause != policy.CauseStatus {
		return
	}
	resp := at.running().Response()
	if at.IsIdleTimeout408(resp, at.running().Reused()) {
		at.lose(res, policy.CauseIdleClose)
		return
	}
	at.StatusOf(res, resp)
	at.learnLimits(res)
	switch {
	case at.GRPC && !at.peekGRPCStatus(res):
		at.lose(res, policy.CauseReset)
	case at.holdsStream(res):
		at.awaitFirstContent(res)
	}
}

// lose drops the response of the attempt, because cause stands for what came.
func (at *attempts) lose(res *policy.Result, cause policy.Cause) {
	at.running().Drop()
	*res = policy.Result{Cause: cause}
}

// learnLimits reads what the headers of a response say about the rate limits of the route's upstream.
func (at *attempts) learnLimits(res *policy.Result) {
	if at.Tokens != nil && at.Dest == at.Route {
		at.Tokens.Learn(at.running().Response(), res.Status)
	}
}

// raceHedge continues an attempt that has a hedge until one of the two remains. cause is why
// reading the attempt's headers ended. The first good response wins; a failure waits for the other
// attempt. It sets res to the result. Everything about the client happens here and not in the goroutine
// of the hedge.
func (at *attempts) raceHedge(res *policy.Result, cause policy.Cause) {
	if at.running().Overtaken() {
		if at.hedge.takeOver(res) {
			at.holdHedgesStream(res)
			return
		}
		cause = at.running().Continue()
	}
	at.evaluate(res, cause)
	if at.ClientStaysOn() && !at.Good(res) && at.hedge.await(res) {
		at.holdHedgesStream(res)
		return
	}
	at.hedge.drop(res)
}

// holdHedgesStream does for a winning hedge what evaluate does at its end.
func (at *attempts) holdHedgesStream(res *policy.Result) {
	at.stream = heldStream{}
	if at.holdsStream(res) {
		at.awaitFirstContent(res)
	}
}

// Target implements attempt.Owner.
func (at *attempts) Target(*attempt.Attempt) attempt.Target { return at.s.target() }

// Dial implements attempt.Owner.
func (at *attempts) Dial(ctx context.Context, o upstream.GetOptions) (*upstream.Conn, error) {
	return at.Dest.UpstreamState.Admission.Dial(ctx, o)
}

// AwaitDescriptor implements attempt.Owner. It closes an idle connection, or waits as long as the
// request has time.
func (at *attempts) AwaitDescriptor(_ *attempt.Attempt, wait time.Duration, since clock.Instant) bool {
	return at.Process.CloseIdleUpstream() || at.s.awaitDescriptor(wait, since.Add(at.Time.MaxWait(since)))
}

// Connected implements attempt.Owner.
func (at *attempts) Connected(_ *attempt.Attempt, up *upstream.Conn) {
	at.s.avoid = up.Addr // what follows it prefers another address
	at.s.ticket.Connected(up.Addr, up.Reused)
}

// RequestHeaders implements attempt.Owner.
func (at *attempts) RequestHeaders(a *attempt.Attempt, form wire.Form, host string, expect bool) wire.Head {
	return at.Out.For(a, form, host, expect)
}

// RespondBy implements attempt.Owner. The time of the request runs from when it was first sent whole.
func (at *attempts) RespondBy(sentAt clock.Instant) clock.Instant {
	at.Time.StartClock(sentAt)
	return at.Time.Deadline
}

// SentWhole implements attempt.Owner.
func (at *attempts) SentWhole(a *attempt.Attempt) { at.s.ticket.SentWhole(a.SentAt()) }

// HedgeDue implements attempt.Owner.
func (at *attempts) HedgeDue() { at.hedge.send() }

// Inform implements attempt.Owner: it forwards a 1xx response at once. It forwards a 100 only once and
// only to a client that expects it, and nothing to HTTP/1.0.
func (at *attempts) Inform(r *http1.Response) {
	is100 := r.Status == 100
	if at.HTTP.Minor == 0 || is100 && !at.ExpectsContinue() {
		return
	}
	if is100 {
		at.Continued()
	}
	if at.w.Inform(r) != nil {
		at.ClientLeft()
	}
}

// Queued implements admission.Requester.
func (at *attempts) Queued(began clock.Instant) { at.report.Queued(began) }
