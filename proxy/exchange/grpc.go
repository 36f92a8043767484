package exchange

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// A gRPC call is an HTTP/2 request like any other to the retry loop. What is
// its own stands here: its status is in trailers, it may be a stream that lasts
// for hours and says nothing for minutes, and its client understands no status
// of HTTP's.

// grpcStatusWait is how long the trailers are awaited of a call whose request is complete and
// whose response began without a message. A server that ends a call with an error sends them
// right after its headers. A stream that opens without a message is delayed by as much, once.
// Tests on slow machines raise it.
var GRPCStatusWait = 50 * time.Millisecond

// grpcEndWait is grpcStatusWait while the end of the client's messages has not been seen. It
// mostly is on its way, but the client of a stream may wait for these headers before it goes on.
var GRPCEndWait = 5 * time.Millisecond

// peekGRPCStatus finds out the status of a call that ended without a message, as far as that
// shows soon. It reports false if the response was cut off before any of it went to the client.
// It is called for gRPC calls only.
func (x *Exchange) peekGRPCStatus(a *policy.Attempt) bool {
	if a.Status != 200 || !x.Route.Policy.RetryOn.AnyGRPC() {
		return true
	}
	whole := true
	if _, inHeader := x.att.Resp.Lookup("grpc-status"); !inHeader {
		whole = peekBody(x.att)
	}
	if status, ok := x.att.HeaderOrTrailer("grpc-status"); ok {
		a.GRPC = policy.ParseGRPCStatus(status)
		readPushback(x.att, a)
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

// notGRPC reports whether the response is one that a gRPC client does not understand: it came
// from something in front of the service.
func (x *Exchange) notGRPC() bool {
	return x.GRPC && !forward.IsGRPC(x.att.Resp.Get(http1.ContentType))
}

// respondNotGRPC answers a gRPC call in place of a response that is no gRPC.
func (x *Exchange) respondNotGRPC(o policy.Outcome) (int, policy.Outcome) {
	x.dropUpstream()
	x.upload.stop()
	status := x.att.Resp.Status
	text := fmt.Sprintf("the upstream answered with HTTP status %d and no gRPC", status)
	return x.w.respondGRPC(grpcStatusOf(status), o, x.report.Reason, text)
}

// grpcStatusOf maps an HTTP status to a gRPC status (gRPC, "HTTP to gRPC Status Code Mapping";
// 4xx of our own beyond it).
func grpcStatusOf(status int) policy.GRPCStatus {
	switch status {
	case 400:
		return policy.GRPCInternal
	case 401:
		return policy.GRPCUnauthenticated
	case 403:
		return policy.GRPCPermissionDenied
	case 404, 405, 501, 505:
		return policy.GRPCUnimplemented
	case 408:
		return policy.GRPCDeadlineExceeded
	case 413, 431:
		return policy.GRPCResourceExhausted
	case 429, 502, 503, 504:
		return policy.GRPCUnavailable
	}
	return policy.GRPCUnknown
}
