package exchange

import (
	"io"

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
func (x *Exchange) holdsStream(a *policy.Attempt) bool {
	return x.Dest.FirstContentTimeout > 0 && a.Status == 200 && !x.Route.DryRun && !x.att.Body.Ended &&
		x.att.Progress.Load() == attempt.Sent && x.att.R <= len(x.att.Up.Buf)-minBodyRoom &&
		isEventStream(&x.att.Resp) && isUncompressed(&x.att.Resp)
}

// awaitFirstContent holds an event stream back until its first content, and sets a to the result if
// that is not what came.
func (x *Exchange) awaitFirstContent(a *policy.Attempt) {
	verdict, err := x.readFirstEvents()
	switch {
	case err == attempt.ErrCut:
		x.dropUpstream()
		*a = policy.Attempt{Cause: policy.CauseReset}
	case rawsocket.IsTimeout(err):
		x.adm.releasePermit(a) // the upstream has responded, and a model that thinks long is no sign of trouble
		x.stream.silent = true
		*a = policy.Attempt{Cause: policy.CauseAttemptTimeout}
	case verdict == eventstream.Failed:
		x.stream.failed = true
		x.StatusAs(a, &x.att.Resp, x.stream.reader.Status())
	}
}

// readFirstEvents reads an event stream until its first content, an error or its end. It gives up
// after eventstream.MaxHeld bytes or if the retry buffer is full: the stream then counts as one
// with content.
func (x *Exchange) readFirstEvents() (eventstream.Verdict, error) {
	b, memory := &x.att.Body, &x.Process.RetryBuffer
	b.KeepBelow = x.att.R // the headers stay where they are
	defer b.MakeRoom()
	charged := 0
	defer func() { memory.Give(charged) }()
	until := request.Earliest(x.Deadline, x.att.SentAt.Add(x.Dest.FirstContentTimeout))
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
		if verdict := x.stream.reader.Read(b.Prefix); verdict != eventstream.Pending {
			return verdict, nil
		}
	}
	return eventstream.Content, nil
}

// goOnWithStream relays a silent stream after all, since the decision d is against a retry.
func (x *Exchange) goOnWithStream(a *policy.Attempt, d *policy.Decision) {
	x.stream.silent = false
	x.StatusOf(a, &x.att.Resp)
	*d = policy.Decision{}
}

// isEventStream reports whether the body of a response is an event stream (WHATWG HTML, section 9.2).
func isEventStream(r *http1.Response) bool {
	return http1.EqualFold(mediaType(r), "text/event-stream")
}
