package exchange

import (
	"errors"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
	"github.com/retryproxy/retryproxy/policy/eventstream"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// heldStream is the beginning of an event stream that is held back until its first content. The
// bytes read so far are held by the attempt's body.
type heldStream struct {
	reader eventstream.Reader
	failed bool // it began with an error
}

// errorIn reads the error with which the stream began. r is its response, and body what came of it.
func (s *heldStream) errorIn(list *apierror.List, r *http1.Response, body []byte) apierror.Verdict {
	return readVerdict(list, r, s.reader.Error(body))
}

// holdsStream reports whether the response is an event stream to be held back.
func (at *attempts) holdsStream(res *policy.Result) bool {
	return at.Dest.FirstContentTimeout > 0 && res.Status == 200 && !at.Route.DryRun && !at.running().Body().Ended() &&
		at.running().IsSent() && at.running().Body().HasRoom() &&
		isEventStream(at.running().Response()) && isUncompressed(at.running().Response())
}

// awaitFirstContent holds an event stream back until its first content. If the stream brings
// something else, it sets res to the result.
func (at *attempts) awaitFirstContent(res *policy.Result) {
	verdict, err := at.readFirstEvents()
	switch {
	case err == attempt.ErrCut:
		at.loseHeld()
		at.running().Drop()
		*res = policy.Result{Cause: policy.CauseReset}
	case verdict == eventstream.Failed:
		at.stream.failed = true
		at.loseHeld()
		at.StatusAs(res, at.running().Response(), at.stream.reader.Status())
		at.learnLimits(res)
	}
}

// loseHeld reads what an event stream that failed before its content says that it used.
func (at *attempts) loseHeld() {
	if at.Route.CountTokens && at.Dest == at.Route {
		at.NeedTokens().LoseUsage(at.running().Body().Held())
	}
}

// keepAliveAfter is how long after its request was sent a stream may still be held back when a
// comment or a ping arrives. The upstream sends them so that nobody between it and the client closes
// a connection that seems idle. The shortest of such timeouts in common use is 30 s.
const keepAliveAfter = 10 * time.Second

// heldUntil returns when an event stream without content is relayed: after the route's time for it, or
// after half of the time that the client waits. The client may wait for that time for each byte, so
// comments that are held back would not keep it waiting.
func (at *attempts) heldUntil() clock.Instant {
	sent := at.running().SentAt()
	until := sent.Add(at.Dest.FirstContentTimeout)
	if leaves := at.Time.ClientLeavesAt; !leaves.IsZero() {
		until = clock.Earliest(until, sent.Add(leaves.Sub(sent)/2))
	}
	return clock.Earliest(at.Time.Deadline, until)
}

// readFirstEvents reads an event stream until its first content, an error or its end. It stops at
// heldUntil, after eventstream.MaxHeld bytes, if the retry buffer is full, or at the first comment or
// ping after keepAliveAfter. The stream then counts as one with content: a silent one may be attached
// to a job that runs or wait for a notification, and another attempt would be as silent.
func (at *attempts) readFirstEvents() (eventstream.Verdict, error) {
	b, memory := at.running().Body(), at.Process.RetryBuffer
	charged := 0
	defer func() { memory.Give(charged) }()
	until := at.heldUntil()
	for len(b.Held()) < eventstream.MaxHeld {
		grew, err := b.ReadAhead(until)
		switch {
		case err == io.EOF:
			return at.stream.reader.ReadEnd(b.Held()), nil
		case rawsocket.IsTimeout(err):
			return eventstream.Content, nil
		case err != nil:
			return eventstream.Pending, err
		}
		if grew > 0 {
			if !memory.Take(grew) {
				return eventstream.Content, nil
			}
			charged += grew
		}
		if verdict := at.stream.reader.Read(b.Held()); verdict != eventstream.Pending {
			return verdict, nil
		}
		if at.Time.Now().Sub(at.running().SentAt()) >= keepAliveAfter && at.stream.reader.IsBetweenEvents(b.Held()) {
			return eventstream.Content, nil
		}
	}
	return eventstream.Content, nil
}

// To the retry loop, a gRPC call is an HTTP/2 request like any other. The differences are here.
// Its status is in trailers. It may be a stream that lasts for hours and is silent for minutes.
// Its client understands no HTTP status.

// GRPCStatusWait bounds the wait for the trailers of a call whose request is complete and whose
// response began without a message. A server that ends a call with an error sends them right after
// its headers. A stream that opens without a message is delayed by this time, once. Tests on slow
// machines raise it.
var GRPCStatusWait = 50 * time.Millisecond

// GRPCEndWait replaces GRPCStatusWait until the end of the client's messages is seen. That end is
// usually in flight, but the client of a stream may wait for these headers before it sends more.
var GRPCEndWait = 5 * time.Millisecond

// peekGRPCStatus reads the status of a call that ended without a message, if it arrives within
// GRPCStatusWait. It reports false if the response was cut off before any of it went to the
// client. It is called for gRPC calls only.
func (at *attempts) peekGRPCStatus(res *policy.Result) bool {
	if res.Status != 200 || !at.Route.Policy.RetryOn.AnyGRPC() {
		return true
	}
	whole := true
	if _, inHeader := at.running().Response().Lookup("grpc-status"); !inHeader {
		if whole = peekBody(at.running()); len(at.running().Body().Held()) > 0 {
			return whole // after a message the status decides nothing
		}
	}
	if status, ok := at.running().HeaderOrTrailer("grpc-status"); ok {
		res.GRPC = policy.ParseGRPCStatus(status)
		readPushback(at.s.att, res)
	}
	return whole
}

// peekBody reads the first piece of the response body, or its end. The relay begins with that
// piece. It reports false if the body was cut off.
func peekBody(a *attempt.Attempt) bool {
	b := a.Body()
	if b.Ended() || !b.HasRoom() {
		return true // no body, or the headers leave no room to read one
	}
	_, err := b.ReadAheadWithin(GRPCEndWait)
	if rawsocket.IsTimeout(err) && a.IsSent() {
		_, err = b.ReadAheadWithin(GRPCStatusWait)
	}
	return err == nil || err == io.EOF || !errors.Is(err, attempt.ErrCut)
}

// readPushback reads grpc-retry-pushback-ms (gRFC A6), the wait that the server asks for. A
// negative value, or one that is not a number, forbids a retry. Beside X-Should-Retry, whichever
// forbids a retry wins: a retry that is not wanted can do harm, and one that is missing cannot. Its
// wait goes before that of Retry-After, because it is gRPC's own.
func readPushback(a *attempt.Attempt, res *policy.Result) {
	v, ok := a.HeaderOrTrailer("grpc-retry-pushback-ms")
	if !ok {
		return
	}
	ms, isNumber := http1.ParseUint(v)
	if !isNumber {
		res.Advice = policy.AdvisesNoRetry
		return
	}
	res.HasRetryAfter, res.RetryAfter = true, time.Duration(min(ms, int64(request.LongestWait/time.Millisecond)+1))*time.Millisecond
}

// isEventStream reports whether the body of a response is an event stream (WHATWG HTML, section 9.2).
func isEventStream(r *http1.Response) bool {
	return http1.EqualFold(mediaType(r), "text/event-stream")
}
