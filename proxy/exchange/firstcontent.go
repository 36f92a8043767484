package exchange

import (
	"errors"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/eventstream"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// heldStream is the beginning of an event stream that is held back until its first content. What
// was read of it is in the Prefix of the attempt's body.
type heldStream struct {
	reader eventstream.Reader
	failed bool // it began with an error
	silent bool // no content came in time: the attempt goes on if it cannot be retried
}

// holdsStream reports whether the response is an event stream that is to be held back.
func (at *attempts) holdsStream(a *policy.Attempt) bool {
	return at.r.Dest.FirstContentTimeout > 0 && a.Status == 200 && !at.r.Route.DryRun && !at.s.att.Body.Ended &&
		at.s.att.Progress.Load() == attempt.Sent && at.s.att.R <= len(at.s.att.Up.Buf)-minBodyRoom &&
		isEventStream(&at.s.att.Resp) && isUncompressed(&at.s.att.Resp)
}

// awaitFirstContent holds an event stream back until its first content, and sets a to the result if
// that is not what came.
func (at *attempts) awaitFirstContent(a *policy.Attempt) {
	verdict, err := at.readFirstEvents()
	switch {
	case err == attempt.ErrCut:
		at.loseHeld()
		at.s.drop()
		*a = policy.Attempt{Cause: policy.CauseReset}
	case rawsocket.IsTimeout(err):
		at.s.admit.Release(at.s.att, a) // the upstream has responded, and a model that thinks long is no sign of trouble
		at.stream.silent = true
		*a = policy.Attempt{Cause: policy.CauseAttemptTimeout}
	case verdict == eventstream.Failed:
		at.stream.failed = true
		at.loseHeld()
		at.r.StatusAs(a, &at.s.att.Resp, at.stream.reader.Status())
		at.learnLimits(a)
	}
}

// readFirstEvents reads an event stream until its first content, an error or its end. It gives up
// after eventstream.MaxHeld bytes or if the retry buffer is full: the stream then counts as one
// with content.
func (at *attempts) readFirstEvents() (eventstream.Verdict, error) {
	b, memory := &at.s.att.Body, &at.r.Process.RetryBuffer
	b.KeepBelow = at.s.att.R // the headers stay where they are
	defer b.MakeRoom()
	charged := 0
	defer func() { memory.Give(charged) }()
	until := request.Earliest(at.r.Time.Deadline, at.s.att.SentAt.Add(at.r.Dest.FirstContentTimeout))
	for len(b.Prefix) < eventstream.MaxHeld {
		piece, err := b.NextBefore(until)
		if err == io.EOF {
			return eventstream.Content, nil
		}
		if err != nil {
			return eventstream.Pending, err
		}
		before := cap(b.Prefix)
		b.Prefix = append(buffer.Grow(b.Prefix, len(piece)), piece...)
		if n := cap(b.Prefix) - before; n > 0 {
			if !memory.Take(n) {
				return eventstream.Content, nil
			}
			charged += n
		}
		if verdict := at.stream.reader.Read(b.Prefix); verdict != eventstream.Pending {
			return verdict, nil
		}
	}
	return eventstream.Content, nil
}

// goOnWithStream relays a silent stream after all, since the decision d is against a retry.
func (at *attempts) goOnWithStream(a *policy.Attempt, d *policy.Decision) {
	at.stream.silent = false
	at.r.StatusOf(a, &at.s.att.Resp)
	*d = policy.Decision{}
}

// A gRPC call is an HTTP/2 request like any other to the retry loop. What is
// its own stands here: its status is in trailers, it may be a stream that lasts
// for hours and says nothing for minutes, and its client understands no status
// of HTTP's.

// GRPCStatusWait is how long the trailers are awaited of a call whose request is complete and
// whose response began without a message. A server that ends a call with an error sends them
// right after its headers. A stream that opens without a message is delayed by as much, once.
// Tests on slow machines raise it.
var GRPCStatusWait = 50 * time.Millisecond

// GRPCEndWait is GRPCStatusWait while the end of the client's messages has not been seen. It
// mostly is on its way, but the client of a stream may wait for these headers before it goes on.
var GRPCEndWait = 5 * time.Millisecond

// peekGRPCStatus finds out the status of a call that ended without a message, as far as that
// shows soon. It reports false if the response was cut off before any of it went to the client.
// It is called for gRPC calls only.
func (at *attempts) peekGRPCStatus(a *policy.Attempt) bool {
	if a.Status != 200 || !at.r.Route.Policy.RetryOn.AnyGRPC() {
		return true
	}
	whole := true
	if _, inHeader := at.s.att.Resp.Lookup("grpc-status"); !inHeader {
		whole = peekBody(at.s.att)
	}
	if status, ok := at.s.att.HeaderOrTrailer("grpc-status"); ok {
		a.GRPC = policy.ParseGRPCStatus(status)
		readPushback(at.s.att, a)
	}
	return whole
}

// peekBody reads the first piece of the response body, for the relay to begin with, or its end.
// It reports false if the body was cut off.
func peekBody(a *attempt.Attempt) bool {
	b := &a.Body
	if b.Ended || a.R > len(a.Up.Buf)-minBodyRoom {
		return true // without a body, or with a head that leaves no room to read one
	}
	b.KeepBelow = a.R // the head stays where it is
	piece, err := b.Next(GRPCEndWait)
	if rawsocket.IsTimeout(err) && a.Progress.Load() == attempt.Sent {
		piece, err = b.Next(GRPCStatusWait)
	}
	if len(piece) > 0 {
		b.Prefix = append(buffer.Grow(b.Prefix, len(piece)), piece...)
	}
	return err == nil || err == io.EOF || !errors.Is(err, attempt.ErrCut)
}

// readPushback obeys grpc-retry-pushback-ms (gRFC A6): the wait that the server asks for. A value
// that is no number, as a negative one, forbids a retry.
func readPushback(a *attempt.Attempt, res *policy.Attempt) {
	v, ok := a.HeaderOrTrailer("grpc-retry-pushback-ms")
	if !ok {
		return
	}
	ms, isNumber := http1.ParseUint(v)
	if !isNumber {
		res.Final = true
		return
	}
	res.HasRetryAfter, res.RetryAfter = true, time.Duration(min(ms, int64(request.LongestWait/time.Millisecond)+1))*time.Millisecond
}

// isEventStream reports whether the body of a response is an event stream (WHATWG HTML, section 9.2).
func isEventStream(r *http1.Response) bool {
	return http1.EqualFold(mediaType(r), "text/event-stream")
}
