package exchange

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// sender has the running attempt of a request, and what its next one depends on.
type sender struct {
	r        *request.Request
	admitter admission.Admitter
	env      attempt.Env
	att      *attempt.Attempt // the running attempt, or the last one: the first, or a hedge that won
	ticket   admission.Ticket // of the running attempt or, before it, of the next one

	first         attempt.Attempt
	unmade        *admission.Refusal // why the running attempt was not made after all: no descriptor was free in time; nil: it was
	avoid         string             // the address of the last attempt; the next one prefers another
	waited        time.Duration      // before the last retry
	passed        uint64             // Group.Passed when the first attempt began that was retried free, or else the last one
	freeRetries   uint8              // at most 10, see policy.maxFreeRetries
	askedWaitUsed bool               // one retry cost no budget token, because the upstream asked for the wait
}

// begin prepares for another request.
func (s *sender) begin() {
	s.avoid, s.waited, s.freeRetries, s.askedWaitUsed = "", 0, 0, false
	s.att, s.unmade = &s.first, nil
	s.att.End(policy.CauseReset, 0) // after a fault it may not have ended
	s.admitter.Begin()
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
	return attempt.Options{
		Form: s.r.Conn.Form(), Limits: s.r.Settings.Limits, BodyIdle: s.r.Time.BodyIdle(),
		Upgrade: s.r.HTTP.Upgrade != nil, Expect: s.r.ExpectsContinue() && n == 1, Interactive: s.r.GRPC, HedgeAfter: hedgeAfter, Timeout: s.r.Time.AttemptTimeout(),
	}
}

// target returns where the next attempt is sent.
func (s *sender) target() attempt.Target {
	var now time.Duration
	if s.r.Attempts() == 1 {
		now = time.Duration(s.r.Time.Clock)
	}
	return attempt.Target{
		Pool: s.r.Dest.UpstreamState.Pool, Choice: s.choice(), HTTP1: s.r.HTTP.Upgrade != nil,
		DialTimeout: s.r.Route.DialTimeout, DialBy: s.r.Time.Deadline, MaxIdle: s.maxIdle(), Now: now,
	}
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

// maxIdle returns for how long a pooled connection may have been idle; 0 means any time.
func (s *sender) maxIdle() time.Duration {
	if s.r.RetriesReset() {
		return 0
	}
	return freshFor
}

// connectAndSend makes the attempt and returns how reading its headers ended. If fresh is set, it dials a new
// connection.
func (s *sender) connectAndSend(fresh bool) policy.Cause {
	if s.freeRetries == 0 {
		s.passed = s.r.Dest.UpstreamState.Pool.Passed()
	}
	cause := s.att.Make(fresh)
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
	return !s.r.Dest.AttemptTimeoutHard && s.att.InFlight() && !s.r.Time.IsOver()
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

// admit gets the ticket of the next attempt.
func (s *sender) admit(now clock.Instant) *admission.Refusal {
	return s.admitter.Admit(&s.ticket, now, s.r.Dest.Terms, s.ask())
}

// admitHedge returns a hedge of the running attempt with its ticket, or nil if it is not admitted now.
func (s *sender) admitHedge(now clock.Instant) *hedge {
	h := &hedge{Attempt: s.env.New()}
	if !s.admitter.AdmitHedge(&h.ticket, now, s.r.Route.Terms, &h.use) {
		return nil
	}
	return h
}

// ask returns what the next attempt is to admission.
func (s *sender) ask() admission.Ask {
	return admission.Ask{
		Began: s.r.Time.Began, Deadline: s.r.Time.Deadline, Unfinished: s.r.IsUnfinished(), First: s.r.Attempts() == 0,
	}
}

// awaitDescriptor waits before the next try to get a descriptor. It reports false if the attempt is not
// made; unmade is why.
func (s *sender) awaitDescriptor(wait time.Duration, until clock.Instant) bool {
	why := s.admitter.AwaitDescriptor(&s.ticket, s.ask(), s.r.Time.Clock, wait, until)
	switch {
	case why == nil:
		return true
	case why.ClientLeft:
		s.r.ClientLeft()
	}
	s.unmade = why
	return false
}

// release settles the ticket of the running attempt with its result res, unless the race with its hedge
// has.
func (s *sender) release(res *policy.Result) {
	if s.ticket.IsOpen() {
		s.ticket.Release(s.r.Time.Clock, res, s.att.Progress(), s.r.CutDialShort(s.att))
	}
}

// adopt makes the hedge h the running attempt.
func (s *sender) adopt(h *hedge) {
	s.att, s.ticket, s.avoid = h.Attempt, h.ticket, h.Addr()
}

// abandonTicket settles the ticket, if that was not done, because nobody waits for the attempt. The
// connection of a probe is still read. The caller closes any other.
func (s *sender) abandonTicket(kind breaker.EndKind) {
	if !s.ticket.IsOpen() {
		return
	}
	if late, awaited := s.ticket.Abandon(s.r.Time.Now(), kind, s.att.Progress()); awaited {
		late.AwaitResponse(s.att.Take())
	}
}

// returnTicket settles the ticket of an attempt that is not sent, if it was begun.
func (s *sender) returnTicket() {
	if s.ticket.IsOpen() {
		s.ticket.Return(s.r.Time.Now())
	}
}

// situation returns what the policy has to know about the request.
func (s *sender) situation() policy.Situation {
	its := s.r.Situation()
	its.Replay, its.Previous = s.replay(), s.waited
	its.FreeRetries, its.AskedWaitUsed = int(s.freeRetries), s.askedWaitUsed
	its.OthersPass = s.r.Dest.UpstreamState.Pool.Passed() != s.passed
	return its
}

// redirect sends the next attempts, beginning with a, to another upstream. The request headers are
// rendered anew for it.
func (s *sender) redirect(to *settings.RouteState, a *attempt.Attempt) {
	s.att, s.avoid = a, ""
	s.r.Redirect(to)
}
