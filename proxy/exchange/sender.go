package exchange

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/permit"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// sender connects and sends the attempts of a request, one after the other.
type sender struct {
	r     *request.Request
	admit *permit.Admitter
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
	s.att.Spliced, s.att.Began = false, 0
}

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

// connect gets a connection: a pooled one at once, otherwise a dialled one while the client is
// watched. If it returns CauseStatus, s.att has the connection.
func (s *sender) connect(fresh bool) policy.Cause {
	pool := s.r.Dest.UpstreamState.Pool
	if s.freeRetries == 0 {
		s.passed = pool.Passed()
	}
	s.att.Unchecked = s.att.Upload().IsBuffered()
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
	return s.r.Safe && s.r.Body.Keeps() && s.r.Retries < s.r.MaxRetries && s.r.Dest.RepeatsReset
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

// outOfDescriptors reports whether a dial failed because no file descriptor was left, which is not
// the upstream's fault.
func outOfDescriptors(err error) bool {
	var dial *upstream.DialError
	return errors.As(err, &dial) && dial.Kind == upstream.KindNoDescriptors
}

// dial opens a connection and gives up when the client leaves. It dials in a goroutine of its own:
// package net needs 8 KiB of stack for that, which this goroutine would keep through every wait.
func (s *sender) dial(o upstream.GetOptions) (up *upstream.Conn, err error) {
	ctx, cancel := s.r.Process.Clock.Context(s.r.Time.Deadline)
	defer cancel()
	o.Fresh = true
	s.att.Upload().StartWatch(cancel)
	defer s.att.Upload().Stop()
	admission := s.r.Dest.UpstreamState.Admission
	dialled := make(chan any)
	go func() {
		defer func() {
			fault := recover()
			if fault != nil { // its stack is that of this goroutine
				fault = fmt.Errorf("%v\n%s", fault, debug.Stack())
			}
			dialled <- fault
		}()
		up, err = admission.Dial(ctx, o)
	}()
	if fault := <-dialled; fault != nil {
		panic(fault)
	}
	return up, err
}

// use makes up the connection of the attempt.
func (s *sender) use(up *upstream.Conn) {
	s.att.Use(up)
	s.avoid = up.Addr // a next attempt prefers another address
	s.admit.Connected()
}

func (s *sender) dialFailed(err error) policy.Cause {
	if s.admit.NoAttempt == permit.Admitted {
		s.admit.Connected()
	}
	cause := s.att.DialFailed(err)
	if s.att.DialErr != nil {
		s.avoid = s.att.Addr
	}
	return cause
}

// request returns the parts of the request that have arrived: the headers and the beginning of the
// body. end reports whether this is all of it. expect reports whether the upstream is asked for a
// 100 first.
func (s *sender) request() (parts [][]byte, headers int, expect, end bool, err error) {
	s.r.Body.Rewind()
	expect = s.r.ExpectsContinue() && s.att.Number == 1 && !s.r.Body.Ready() // a body that is here does not wait for a 100
	s.att.NotReusable, s.att.RespondedEarly = expect || s.mayGoUnread(), false
	s.r.Out.Render()
	rendered := s.r.Out.Finish(s.r.Out.Headers, expect, s.att)
	s.r.Out.Headers = rendered[:len(s.r.Out.Headers)]
	parts, end, err = s.att.Upload().Gather(rendered, expect)
	return parts, len(rendered), expect, end, err
}

// options returns what an attempt must know about the request.
func (s *sender) options() attempt.Options {
	return attempt.Options{BodyIdle: s.r.Time.BodyIdle(), Interactive: s.r.GRPC}
}

// replay returns whether the body can be replayed, as far as is known while it is being sent.
func (s *sender) replay() policy.Replay {
	if s.att.Upload().HasBody() {
		return s.r.Body.ReplaySoFar()
	}
	return s.r.Body.Replay()
}

// mayGoUnread reports whether the request has a body that an upstream may leave unread, because
// its method gives the body no meaning (RFC 9110 section 9.3). Such an upstream would parse the
// body as the next request.
func (s *sender) mayGoUnread() bool {
	if s.r.Body.Framing().Empty() || s.att.Up.Stream() {
		return false
	}
	switch string(s.r.HTTP.Method) {
	case "GET", "HEAD", "OPTIONS", "DELETE", "TRACE":
		return true
	}
	return false
}

// mayResume reports whether an attempt that timed out may continue.
func (s *sender) mayResume() bool {
	return !s.r.Dest.AttemptTimeoutHard && s.att.Up != nil && (s.r.Time.Deadline.IsZero() || s.r.Time.Now().Before(s.r.Time.Deadline))
}

// discard drops the connection of an attempt that will be retried.
func (s *sender) discard() {
	s.drop()
	s.att.Body().Release()
	s.att.Upload().Stop()
}

// drop resets the connection of an unfinished attempt, so that the server notices at once.
func (s *sender) drop() {
	if s.att.Up == nil {
		return
	}
	s.att.Upload().EndWrites()
	s.att.Abort()
}

// setAside takes the running attempt out of the request, with a response that may still be relayed,
// and makes room for the next one. The caller owns the attempt.
func (s *sender) setAside() *attempt.Attempt {
	s.endRequest()
	s.att.Upload().Stop()
	left := s.att
	s.att = &attempt.Attempt{Host: left.Host, Buffers: left.Buffers}
	s.att.Serve(s.r, &s.r.Body, s.options())
	return left
}

// resume makes a, which was set aside, the running attempt again.
func (s *sender) resume(a *attempt.Attempt) {
	s.discard()
	s.att = a
}

// abandonPermit keeps the permit of an attempt that was sent and that the client no longer waits
// for, because the upstream still works on it. The connection of a probe is still read: its late
// response is the first sign that the upstream is back. The caller of abandonPermit closes any
// other connection.
func (s *sender) abandonPermit(kind breaker.EndKind) {
	if s.admit.AwaitsLateResponse(s.att, s.att.Permit) {
		s.att.Upload().Stop() // the pump could wake the goroutine that reads the response
	}
	s.admit.Abandon(s.att, kind)
}

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

// endRequest is called when the response is whole, before its last bytes go to the client. A
// request body still in flight is stopped, and its connection is not reused: later bytes could
// pass for another request.
func (s *sender) endRequest() {
	if s.att.Upload().Running() {
		s.stopUpload()
	}
}

func (s *sender) stopUpload() {
	s.att.Upload().AwaitLastWrite()
	if s.att.Progress.Load() != attempt.Sent {
		s.att.NotReusable = true
		s.att.Upload().Stop()
	}
}

// redirect sends the next attempts, beginning with a, to another upstream. The request headers are
// rendered anew for it.
func (s *sender) redirect(to *settings.RouteState, a *attempt.Attempt) {
	s.r.Dest, s.avoid = to, ""
	s.att = a
	s.r.Conn.Buffers.Put(s.r.Out.Headers)
	s.r.Out.Headers = nil
}
