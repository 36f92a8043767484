package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/status"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/attempt"
)

// endAttempt ends the attempt, which came to res, with the decision d on it.
func (x *Exchange) endAttempt(res *policy.Result, d policy.Decision) {
	x.sender.abandonTicket(x.r.Time.TimeoutEndKind()) // unless it was settled with the result
	if d.Token == policy.TokenTaken {
		x.sender.ticket.Reserve(x.r.Route.Terms)
	}
	x.sender.reportToEndpoint(x.sender.att, res)
	if x.attempts.hedge.learns {
		x.attempts.hedge.learnLatency(res, d.Class)
	}
	x.report.AttemptDone(x.sender.att, res, d.Class)
	if x.r.Tokens != nil {
		x.countFailed(res, d.Retry)
	}
}

// countFailed counts what the failed attempt used, and gives back what an attempt took of rate limits
// that was not sent.
func (x *Exchange) countFailed(res *policy.Result, again bool) {
	fate := tokens.Wasted
	if again {
		fate = tokens.Retried
	}
	x.report.TokensUsed(x.r.Tokens.TakeLost(), fate)
	switch res.Cause {
	case policy.CauseDial, policy.CauseTLS, policy.CauseUntrusted, policy.CauseIdleClose, policy.CauseRefusedStream:
		x.r.Tokens.Unsent()
	}
}

// reportToEndpoint records the result res of an attempt with its endpoint. There is none if the
// upstream has one address. Dials are counted where they are made. What a client can cause by itself
// is doubtful: it could eject every healthy endpoint.
func (s *sender) reportToEndpoint(a *attempt.Attempt, res *policy.Result) {
	if res.Cause == policy.CauseStatus {
		s.r.Dest.UpstreamState.Pool.NotePassed()
	}
	switch {
	case a.Endpoint() == nil:
	case res.Cause == policy.CauseIdleClose, res.Cause == policy.CauseRefusedStream:
		// A restart closes all idle connections at once, and REFUSED_STREAM only means that there
		// was no room.
	case res.Cause == policy.CauseAttemptTimeout && s.r.CutShort(a),
		res.Cause == policy.CauseReset && !a.IsSent(): // applications give up slow uploads
		a.Endpoint().ReportDoubtful()
	case res.Cause == policy.CauseReset:
		a.Endpoint().ReportLost()
	case res.Cause != policy.CauseStatus, countsAgainstEndpoint(res.JudgedStatus()):
		a.Endpoint().ReportFailure()
	default:
		a.Endpoint().ReportSuccess()
	}
}

// countsAgainstEndpoint reports whether a status is evidence of a broken endpoint. A 500 usually
// comes from the request or from code that all endpoints share; a 429 concerns the client.
func countsAgainstEndpoint(code int) bool { return status.GatewayErrors.Has(code) }
