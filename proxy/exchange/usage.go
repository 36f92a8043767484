package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/tokens"
)

// readsUsage begins to read what the response to relay says that it used, if the route counts tokens.
func (re *relay) readsUsage() bool {
	at := re.at
	resp := &at.s.att.Resp
	if !at.r.Route.CountTokens || resp.Status < 200 || resp.Status > 299 || at.stream.failed || !isUncompressed(resp) {
		return false
	}
	events := isEventStream(resp)
	if !events && !isPlainJSON(resp) {
		return false
	}
	at.r.NeedTokens().BeginUsage(events)
	return true
}

// countUsage counts what a response used that was relayed, whole or not.
func (re *relay) countUsage(whole bool) {
	fate := tokens.Wasted
	if whole {
		fate = tokens.Delivered
	}
	if used := re.at.r.Tokens.EndUsage(); used.Any() {
		re.at.report.Observer.TokensUsed(used, fate)
	}
}

// learnLimits reads what the headers of a response say about the rate limits of the route's upstream.
func (at *attempts) learnLimits(a *policy.Attempt) {
	if at.r.Tokens != nil && at.r.Dest == at.r.Route {
		at.r.Tokens.Learn(&at.s.att.Resp, a.Status)
	}
}

// loseHeld reads what an event stream that failed before its content says that it used.
func (at *attempts) loseHeld() {
	if at.r.Route.CountTokens && at.r.Dest == at.r.Route {
		at.r.NeedTokens().LoseUsage(at.s.att.Body.Prefix)
	}
}

// countFailed counts what the failed attempt used, and gives back what an attempt took of rate limits
// that was not sent.
func (x *Exchange) countFailed(a *policy.Attempt, again bool) {
	if used := x.r.Tokens.TakeLost(); used.Any() {
		fate := tokens.Wasted
		if again {
			fate = tokens.Retried
		}
		x.report.Observer.TokensUsed(used, fate)
	}
	switch a.Cause {
	case policy.CauseDial, policy.CauseTLS, policy.CauseUntrusted, policy.CauseIdleClose, policy.CauseRefusedStream:
		x.r.Tokens.Unsent()
	}
}
