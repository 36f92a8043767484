package exchange

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/permit"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// sender has the running attempt of a request, and what its next one depends on.
type sender struct {
	r     *request.Request
	admit *permit.Admitter
	env   attempt.Env
	att   *attempt.Attempt // the running attempt, or the last one: the first, or a hedge that won

	first         attempt.Attempt
	avoid         string        // the address of the last attempt; the next one prefers another
	waited        time.Duration // before the last retry
	passed        uint64        // Group.Passed when the first attempt began that was retried free, or else the last one
	freeRetries   uint8         // at most 10, see policy.maxFreeRetries
	askedWaitUsed bool          // one retry cost no budget token, because the upstream asked for the wait
	lastAttempt   bool          // no retry is possible: the attempt has all the time that is left
}

// begin prepares for another request.
func (s *sender) begin() {
	s.avoid, s.waited, s.freeRetries, s.askedWaitUsed, s.lastAttempt = "", 0, 0, false, false
	s.att = &s.first
	s.att.Ended()
}

// freshFor bounds the idle age of a pooled connection for a request that could not be retried.
// Servers close idle connections after 2 s at the earliest (Node.js 5 s, Gunicorn 2 s), and such a
// close may already be in flight.
const freshFor = 1500 * time.Millisecond

// MaxDescriptorRetry is the longest wait before another dial if no descriptor was free.
const MaxDescriptorRetry = attempt.MaxDescriptorRetry

// options returns what the next attempt must know about the request. The hedge beside it is due after
// hedgeAfter; 0 means never.
func (s *sender) options(n int, hedgeAfter time.Duration) attempt.Options {
	o := attempt.Options{
		Upgrade: s.r.HTTP.Upgrade != nil, Expect: s.r.ExpectsContinue() && n == 1, Interactive: s.r.GRPC, HedgeAfter: hedgeAfter,
	}
	if !s.lastAttempt {
		o.Timeout = s.r.Time.AttemptTimeout()
	}
	return o
}

// target returns where the next attempt is sent.
func (s *sender) target() attempt.Target {
	t := attempt.Target{
		Pool: s.r.Dest.UpstreamState.Pool, Choice: s.choice(), HTTP1: s.r.HTTP.Upgrade != nil,
		DialTimeout: s.r.Route.DialTimeout, DialBy: s.r.Time.Deadline, MaxIdle: s.maxIdle(),
	}
	if s.r.Attempts == 1 {
		t.Now = time.Duration(s.r.Time.Clock)
	}
	return t
}

// choice returns what determines the endpoint of the next attempt.
func (s *sender) choice() upstream.Choice {
	balance := &s.r.Dest.Balance
	c := upstream.Choice{Avoid: s.avoid, RoundRobin: balance.RoundRobin}
	if balance.Header != "" {
		if value, ok := s.r.HTTP.Lookup(balance.Header); ok {
			c.Key = upstream.KeyOf(value)
		}
	}
	return c
}

// maxIdle returns for how long a pooled connection may have been idle; 0 means any time. It depends on
// whether the attempt will be retried, as far as is known now, if its connection ends without a
// response.
func (s *sender) maxIdle() time.Duration {
	if s.r.Safe && s.r.Body.Keeps() && s.r.Retries < s.r.MaxRetries && s.r.Dest.RepeatsReset {
		return 0
	}
	return freshFor
}

// make makes the attempt and returns how reading its headers ended. If fresh is set, it dials a new
// connection.
func (s *sender) connectAndSend(fresh bool) policy.Cause {
	if s.freeRetries == 0 {
		s.passed = s.r.Dest.UpstreamState.Pool.Passed()
	}
	cause := s.att.Make(fresh)
	if s.admit.NoAttempt == permit.Admitted {
		s.admit.Connected()
	}
	if addr := s.att.Addr(); addr != "" {
		s.avoid = addr // a next attempt prefers another address
	}
	return cause
}

// replay returns whether the body can be replayed, as far as is known while it is being sent.
func (s *sender) replay() policy.Replay {
	if s.att.SendsBody() {
		return s.r.Body.ReplaySoFar()
	}
	return s.r.Body.Replay()
}

// mayResume reports whether an attempt that timed out may continue.
func (s *sender) mayResume() bool {
	return !s.r.Dest.AttemptTimeoutHard && s.att.InFlight() && (s.r.Time.Deadline.IsZero() || s.r.Time.Now().Before(s.r.Time.Deadline))
}

// setAside takes the running attempt out of the request, with a response that may still be relayed,
// and makes room for the next one. The caller owns the attempt.
func (s *sender) setAside() *attempt.Attempt {
	left := s.att
	left.SetAside()
	s.att = s.env.New()
	return left
}

// resume makes a, which was set aside, the running attempt again.
func (s *sender) resume(a *attempt.Attempt) {
	s.att.Abandon()
	s.att = a
}

// abandonPermit keeps the permit of an attempt that was sent and that the client no longer waits
// for, because the upstream still works on it. The connection of a probe is still read: its late
// response is the first sign that the upstream is back. The caller of abandonPermit closes any
// other connection.
func (s *sender) abandonPermit(kind breaker.EndKind) { s.admit.Abandon(s.att, kind) }

// situation returns what the policy has to know about the request.
func (s *sender) situation() policy.Situation {
	left := request.LongestWait
	if !s.r.Time.Deadline.IsZero() {
		left = s.r.Time.Deadline.Sub(s.r.Time.Clock)
	}
	return policy.Situation{
		Retries:       int(s.r.Retries),
		MaxRetries:    int(s.r.MaxRetries),
		Safe:          s.r.Safe,
		Replay:        s.replay(),
		Left:          left,
		Elapsed:       s.r.Time.Clock.Sub(s.r.Time.Began),
		Previous:      s.waited,
		FreeRetries:   int(s.freeRetries),
		OthersPass:    s.r.Dest.UpstreamState.Pool.Passed() != s.passed,
		AskedWaitUsed: s.askedWaitUsed,
		Draining:      s.r.Process.Draining.Load(),
		Layered:       s.r.Layered,
	}
}

// redirect sends the next attempts, beginning with a, to another upstream. The request headers are
// rendered anew for it.
func (s *sender) redirect(to *settings.RouteState, a *attempt.Attempt) {
	s.r.Dest, s.avoid = to, ""
	s.att = a
	s.r.Out.Drop()
}
