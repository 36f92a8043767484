package exchange

import (
	"context"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// freshFor bounds the idle age of a pooled connection for a request that could not be
// retried. Servers close idle connections after 2 s at the earliest (Node.js 5 s,
// Gunicorn 2 s), and that close may be on its way.
const freshFor = 1500 * time.Millisecond

// current is a request, its report and the attempt that it is at. The parts of an exchange share it,
// so that all of them go on with a hedge that won.
type current struct {
	r      *request.Request
	report *report.Report
	att    *attempt.Attempt // the running one, or the last one: the first, or a hedge that won
}

// sender gets the attempts of a request admitted, connected and sent, one after the other.
type sender struct {
	current
	adm    admitter
	upload upload

	first         attempt.Attempt
	avoid         string // the address of the last attempt; the next one prefers another
	freeRetryUsed bool
	lastAttempt   bool // no retry is possible any more: the attempt has all the time that is left
}

// connect gets a connection: a pooled one at once, otherwise a dialled one while the client
// is watched. CauseStatus means that s.att has it.
func (s *sender) connect(fresh bool) policy.Cause {
	pool := s.r.Dest.UpstreamState.Pool
	s.att.Unchecked = s.upload.isBuffered()
	if s.att.Fault.Breaks() {
		s.use(attempt.StandIn(pool, s.att.Fault.Fault))
		return policy.CauseStatus
	}
	choice := s.choice()
	o := upstream.GetOptions{Fresh: fresh, ForceLookup: fresh, Avoid: s.avoid, Key: choice.Key, Endpoint: pool.Choose(choice), Unchecked: s.att.Unchecked, HTTP1: s.r.HTTP.Upgrade != nil}
	if !s.retriesReset() {
		o.MaxIdle = freshFor
	}
	if s.r.Attempts == 1 {
		o.Now = time.Duration(s.r.Clock)
	}
	up, err := s.connection(&o, fresh)
	if err != nil {
		return s.dialFailed(err)
	}
	s.use(up)
	if permit := s.att.Permit; permit.Probe() && !up.Reused {
		s.r.Dest.UpstreamState.Admission.WatchProbe(permit, up.Addr)
	}
	return policy.CauseStatus
}

// choice returns what decides about the endpoint of the next attempt.
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

// retriesReset reports whether the attempt will be retried, as far as is known now, if its
// connection ends without a response.
func (s *sender) retriesReset() bool {
	return s.r.Safe && s.r.Body.Keeping && s.r.Retries < s.r.MaxRetries && s.r.Dest.RepeatsReset
}

// dial opens a connection and gives up when the client leaves.
func (s *sender) dial(o upstream.GetOptions) (*upstream.Conn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	if !s.r.Deadline.IsZero() {
		ctx, cancel = context.WithDeadline(context.Background(), s.r.Process.Clock.At(s.r.Deadline))
	}
	defer cancel()
	o.Fresh = true
	s.upload.startWatch(cancel)
	defer s.upload.stop()
	return s.r.Dest.UpstreamState.Admission.Dial(ctx, o)
}

// use gives the attempt its connection.
func (s *sender) use(up *upstream.Conn) {
	s.att.Use(up)
	s.avoid = up.Addr // the next attempt, if there is one, prefers another address
	s.adm.rateLimitSlot = nil
	if s.upload.lastPiece.Load() { // reading costs less than writing
		s.upload.lastPiece.Store(false)
	}
}

func (s *sender) dialFailed(err error) policy.Cause {
	if s.adm.noAttemptReason == policy.ReasonNone {
		s.adm.rateLimitSlot = nil
	}
	cause := s.att.DialFailed(err)
	if s.att.DialErr != nil {
		s.avoid = s.att.Addr
	}
	return cause
}

// mayResume reports whether an attempt that timed out may still be awaited.
func (s *sender) mayResume() bool {
	return !s.r.Dest.AttemptTimeoutHard && (s.att.Up != nil || s.att.Fault.Stalled) && (s.r.Deadline.IsZero() || s.r.Now().Before(s.r.Deadline))
}

// discard drops the connection of an attempt that will be retried.
func (s *sender) discard() {
	s.dropUpstream()
	s.att.Body.Release()
	s.upload.stop()
}

// dropUpstream resets the connection of an unfinished attempt, so that a server that works
// on it notices at once.
func (s *sender) dropUpstream() {
	if s.att.Up == nil {
		return
	}
	if s.upload.Running {
		s.upload.Stopping.Store(true) // before its write's time is over, which is no failure then
	}
	_ = s.att.Up.SetDeadline(downstream.Past)
	s.upload.stop()
	s.att.Abort()
}

// abandonPermit keeps the permit of an attempt that was sent and is no longer awaited,
// because the upstream still works on it. The connection of a probe is still read:
// its late response is the first sign that the upstream is back. The caller of
// abandonPermit closes any other connection.
func (s *sender) abandonPermit(kind breaker.EndKind) {
	if s.adm.awaitsLateResponse(s.att.Permit) {
		s.upload.stop() // the pump could wake who reads the response
	}
	s.adm.abandon(kind)
}
