package exchange

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/permit"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upload"
)

// sender connects and sends the attempts of a request, one after the other.
type sender struct {
	r      *request.Request
	admit  *permit.Admitter
	upload *upload.Upload
	att    *attempt.Attempt // the running attempt, or the last one: the first, or a hedge that won

	first         attempt.Attempt
	avoid         string        // the address of the last attempt; the next one prefers another
	waited        time.Duration // before the last retry
	freeRetryUsed bool
	lastAttempt   bool // no retry is possible: the attempt has all the time that is left
}

// begin prepares for another request.
func (s *sender) begin() {
	s.avoid, s.waited, s.freeRetryUsed, s.lastAttempt = "", 0, false, false
	s.att = &s.first
	s.att.Throttled, s.att.Spliced, s.att.Began = false, false, 0
	s.upload.Serve(s.att)
}

// request returns the parts of the request that have arrived: the headers and the beginning of the
// body. end reports whether this is all of it. expect reports whether the upstream is asked for a
// 100 first.
func (s *sender) request() (parts [][]byte, headers int, expect, end bool, err error) {
	s.r.Body.Rewind()
	expect = s.r.ExpectsContinue && s.att.Number == 1 && !s.r.Body.Ready() // a body that is here does not wait for a 100
	s.att.NotReusable, s.att.RespondedEarly = expect || s.mayGoUnread(), false
	s.r.Out.Render()
	rendered := s.r.Out.Finish(s.r.Out.Headers, expect, s.att)
	s.r.Out.Headers = rendered[:len(s.r.Out.Headers)]
	parts, end, err = s.upload.Gather(rendered, expect)
	return parts, len(rendered), expect, end, err
}

// send writes the parts of the request. The rest of its body is sent here or by the pump. It does
// not return a failure after the first byte, because the upstream may have responded before the
// failure.
func (s *sender) send(parts [][]byte, headers int, expect, end bool) attempt.SendEnd {
	if s.att.Unchecked && s.att.Reused && !s.att.Up.StillOpen() {
		return attempt.Stale
	}
	total := length(parts)
	n, err := s.upload.WriteUp(parts)
	s.att.GotBytes = n > 0
	switch {
	case n == 0 && err != nil:
		return attempt.NotTaken
	case err != nil:
		s.att.Progress.Store(attempt.WriteFailed)
	case end:
		s.att.SentWhole()
	case expect:
		s.upload.Start()
	default:
		s.upload.SendInline(total - headers)
	}
	return attempt.Taken
}

// mayGoUnread reports whether the request has a body that an upstream may leave unread, because
// its method gives the body no meaning (RFC 9110 section 9.3). Such an upstream would parse the
// body as the next request.
func (s *sender) mayGoUnread() bool {
	if s.r.Body.Framing.Empty() || s.att.Up.Stream() {
		return false
	}
	switch string(s.r.HTTP.Method) {
	case "GET", "HEAD", "OPTIONS", "DELETE", "TRACE":
		return true
	}
	return false
}

func length(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// mayResume reports whether an attempt that timed out may continue.
func (s *sender) mayResume() bool {
	return !s.r.Dest.AttemptTimeoutHard && (s.att.Up != nil || s.att.Fault.Stalled) && (s.r.Time.Deadline.IsZero() || s.r.Time.Now().Before(s.r.Time.Deadline))
}

// discard drops the connection of an attempt that will be retried.
func (s *sender) discard() {
	s.drop()
	s.att.Body.Release()
	s.upload.Stop()
}

// drop resets the connection of an unfinished attempt, so that the server notices at once.
func (s *sender) drop() {
	if s.att.Up == nil {
		return
	}
	if s.upload.Pump.Running {
		s.upload.Pump.Stopping.Store(true) // before the deadline, so that the pump's write does not count as a failure
	}
	_ = s.att.Up.SetDeadline(downstream.Past)
	s.upload.Stop()
	s.att.Abort()
}

// abandonPermit keeps the permit of an attempt that was sent and that the client no longer waits
// for, because the upstream still works on it. The connection of a probe is still read: its late
// response is the first sign that the upstream is back. The caller of abandonPermit closes any
// other connection.
func (s *sender) abandonPermit(kind breaker.EndKind) {
	if s.admit.AwaitsLateResponse(s.att, s.att.Permit) {
		s.upload.Stop() // the pump could wake the goroutine that reads the response
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
		Replay:        s.upload.Replay(),
		Left:          left,
		Elapsed:       s.r.Time.Clock.Sub(s.r.Time.Began),
		Previous:      s.waited,
		FreeRetryUsed: s.freeRetryUsed,
		Draining:      s.r.Process.Draining.Load(),
		Layered:       s.r.Layered,
	}
}

// endRequest is called when the response is whole, before its last bytes go to the client. A
// request body still in flight is stopped, and its connection is not reused: later bytes could
// pass for another request.
func (s *sender) endRequest() {
	if s.upload.Pump.Running {
		s.stopUpload()
	}
}

func (s *sender) stopUpload() {
	s.upload.AwaitLastWrite()
	if s.att.Progress.Load() != attempt.Sent {
		s.att.NotReusable = true
		s.upload.Stop()
	}
}

// stall waits out the injected delay, within the time of the attempt and the request. It returns
// CauseStatus if the delay is over and the attempt continues. A drain ends it early.
func (s *sender) stall() policy.Cause {
	began := s.r.Time.Tick()
	until := began.Add(s.att.Fault.Delay)
	end := s.admit.Await(s.stallUntil(began, until), nil)
	took := s.r.Time.Tick().Sub(began)
	s.att.Fault.Taken += took
	s.att.Fault.Delay -= took
	switch {
	case end == permit.Left:
		s.r.ClientEnd.Store(request.ClientGone)
		return policy.CauseReset
	case end != permit.DrainBegan && s.att.Fault.Delay > 0:
		return policy.CauseAttemptTimeout
	}
	s.att.Fault.Stalled = false
	return policy.CauseStatus
}

// stallUntil returns until, or the end of the attempt's or the request's time if that is sooner.
func (s *sender) stallUntil(began, until clock.Instant) clock.Instant {
	if t := s.r.Time.AttemptTimeout(); t > 0 && !s.lastAttempt {
		until = request.Earliest(until, began.Add(t))
	}
	if !s.r.Time.Deadline.IsZero() {
		until = request.Earliest(until, s.r.Time.Deadline)
	}
	return until
}

// redirect sends the next attempts, beginning with a, to another upstream. The request headers are
// rendered anew for it.
func (s *sender) redirect(to *settings.RouteState, a *attempt.Attempt) {
	s.r.Dest, s.avoid = to, ""
	s.att = a
	s.upload.Serve(a)
	s.r.Conn.Buffers.Put(s.r.Out.Headers)
	s.r.Out.Headers = nil
}
