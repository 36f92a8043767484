package exchange

import (
	"context"
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// freshFor bounds the idle age of a pooled connection for a request that could not be retried.
// Servers close idle connections after 2 s at the earliest (Node.js 5 s, Gunicorn 2 s), and such a
// close may already be in flight.
const freshFor = 1500 * time.Millisecond

// A dial that found no free descriptor is tried again after minDescriptorWait, then after twice as
// long each time, up to MaxDescriptorRetry.
const (
	minDescriptorWait  = 5 * time.Millisecond
	MaxDescriptorRetry = 250 * time.Millisecond
)

// outOfDescriptors reports whether a dial failed because no file descriptor was left, which is not
// the upstream's fault.
func outOfDescriptors(err error) bool {
	var dial *upstream.DialError
	return errors.As(err, &dial) && dial.Kind == upstream.KindNoDescriptors
}

// connect gets a connection: a pooled one at once, otherwise a dialled one while the client is
// watched. If it returns CauseStatus, s.att has the connection.
func (s *sender) connect(fresh bool) policy.Cause {
	pool := s.r.Dest.UpstreamState.Pool
	s.att.Unchecked = s.upload.IsBuffered()
	if s.att.Fault.Breaks() {
		s.use(attempt.FaultConn(pool, s.att.Fault.Fault))
		return policy.CauseStatus
	}
	choice := s.choice()
	o := upstream.GetOptions{Fresh: fresh, ForceLookup: fresh, Avoid: s.avoid, Key: choice.Key, Endpoint: pool.Choose(choice), Unchecked: s.att.Unchecked, HTTP1: s.r.HTTP.Upgrade != nil, DialTimeout: s.r.Route.DialTimeout}
	if !s.retriesReset() {
		o.MaxIdle = freshFor
	}
	if s.r.Attempts == 1 {
		o.Now = time.Duration(s.r.Time.Clock)
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

// retriesReset reports whether the attempt will be retried, as far as is known now, if its
// connection ends without a response.
func (s *sender) retriesReset() bool {
	return s.r.Safe && s.r.Body.Keeping && s.r.Retries < s.r.MaxRetries && s.r.Dest.RepeatsReset
}

// dial opens a connection and gives up when the client leaves.
func (s *sender) dial(o upstream.GetOptions) (*upstream.Conn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	if !s.r.Time.Deadline.IsZero() {
		ctx, cancel = context.WithDeadline(context.Background(), s.r.Process.Clock.At(s.r.Time.Deadline))
	}
	defer cancel()
	o.Fresh = true
	s.upload.StartWatch(cancel)
	defer s.upload.Stop()
	return s.r.Dest.UpstreamState.Admission.Dial(ctx, o)
}

// use makes up the connection of the attempt.
func (s *sender) use(up *upstream.Conn) {
	s.att.Use(up)
	s.avoid = up.Addr // a next attempt prefers another address
	s.admit.Connected()
	s.upload.Serve(s.att)
}

func (s *sender) dialFailed(err error) policy.Cause {
	if s.admit.NoAttempt == policy.ReasonNone {
		s.admit.Connected()
	}
	cause := s.att.DialFailed(err)
	if s.att.DialErr != nil {
		s.avoid = s.att.Addr
	}
	return cause
}

// connection returns a pooled connection, unless fresh is set, or dials one. If no descriptor is
// left, it closes an idle connection or waits as long as the request has time. The attempt does
// not begin before a descriptor is free.
func (s *sender) connection(o *upstream.GetOptions, fresh bool) (*upstream.Conn, error) {
	var until clock.Instant
	for wait := minDescriptorWait; ; wait = min(2*wait, MaxDescriptorRetry) {
		if !fresh {
			if up := s.r.Dest.UpstreamState.Pool.TryPooled(o); up != nil {
				return up, nil
			}
		}
		up, err := s.dial(*o)
		s.r.Time.Tick()
		o.Now = 0 // closing took time
		if !outOfDescriptors(err) {
			return up, err
		}
		if until.IsZero() {
			until = s.r.Time.Clock.Add(s.admit.MaxDescriptorWait())
		}
		if !s.r.Process.CloseIdleUpstream() && !s.admit.AwaitDescriptor(s.att, wait, until) {
			return nil, err
		}
	}
}
