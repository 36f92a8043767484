package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// A gRPC call is an HTTP/2 request like any other to the retry loop. What is
// its own stands here: its status is in trailers, it may be a stream that lasts
// for hours and says nothing for minutes, and its client understands no status
// of HTTP's.

// isGRPCCall says whether the request just parsed, which came over HTTP/2, is a call that
// expects gRPC's answers: gRPC is spoken over nothing else.
func (x *exchange) isGRPCCall() bool { return forward.IsGRPC(x.get(http1.ContentType)) }

// grpcStatusWait is how long the trailers are waited for of a call whose request is
// complete and whose answer began without a message: a server that ends a call
// in error sends them right behind its header. A stream that opens without a
// message is delayed by as much, once. Tests on slow machines raise it.
var grpcStatusWait = 50 * time.Millisecond

// grpcEndWait is the same while the end of the client's messages has not been seen:
// it mostly is on its way, but a stream's client may wait for this header before
// it goes on.
var grpcEndWait = 5 * time.Millisecond

// peekGRPCStatus finds out the status of a call that ended without a message, as
// far as that shows soon. false: the response was cut off, with nothing of it given
// to the client. Called for gRPC calls alone.
func (x *exchange) peekGRPCStatus(a *policy.Attempt) bool {
	if a.Status != 200 || !x.route.Policy.RetryOn.AnyGRPC() {
		return true
	}
	whole := true
	if _, inHeader := x.resp.Lookup("grpc-status"); !inHeader {
		whole = x.peekBody()
	}
	if status, ok := x.grpcHeader("grpc-status"); ok {
		a.GRPC = policy.ParseGRPCStatus(status)
		x.readPushback(a)
	}
	return whole
}

// peekBody reads the first of the response's body, for the relay to begin with,
// or its end. false: it was cut off.
func (x *exchange) peekBody() bool {
	b := &x.respBody
	if b.ended || x.upR > len(x.up.Buf)-minBodyRoom {
		return true // without a body, or with a head that leaves no room to read one
	}
	b.keepBelow = x.upR // the head stays where it is
	piece, err := b.next(grpcEndWait)
	if isTimeout(err) && x.progress.Load() == sent {
		piece, err = b.next(grpcStatusWait)
	}
	if len(piece) > 0 {
		b.prefix = append(grow(b.prefix, len(piece)), piece...)
	}
	return err == nil || err == io.EOF || !errors.Is(err, errResponseCut)
}

// grpcHeader is a field of the response's header, or of its trailers once it ended.
func (x *exchange) grpcHeader(name string) ([]byte, bool) {
	if v, ok := x.resp.Lookup(name); ok {
		return v, true
	}
	if !x.respBody.ended || x.respBody.framing.Kind != http1.BodyChunked {
		return nil, false
	}
	for _, f := range x.respBody.chunked.Trailers() {
		if http1.EqualFold(f.Name, name) {
			return f.Value, true
		}
	}
	return nil, false
}

// readPushback obeys grpc-retry-pushback-ms (gRFC A6): the wait that the server
// asks for; what is no number, as a negative one, forbids a retry.
func (x *exchange) readPushback(a *policy.Attempt) {
	v, ok := x.grpcHeader("grpc-retry-pushback-ms")
	if !ok {
		return
	}
	ms, isNumber := http1.ParseUint(v)
	if !isNumber {
		a.Final = true
		return
	}
	a.HasRetryAfter, a.RetryAfter = true, time.Duration(min(ms, int64(longestWait/time.Millisecond)+1))*time.Millisecond
}

// guardStatus is the status by which the Guard judges the upstream.
func guardStatus(a *policy.Attempt) int {
	if s := a.GRPC.HTTPStatus(); s != 200 {
		return s
	}
	return a.Status
}

// attemptTimeout is the route's own, 0 for none: the first header of a stream
// may come late.
func (x *exchange) attemptTimeout() time.Duration {
	if x.grpc {
		return 0
	}
	return x.route.AttemptTimeout
}

// bodyIdle is how long a body may pause, either way, 0 for any time: a stream
// may have nothing to say.
func (x *exchange) bodyIdle() time.Duration {
	if x.grpc {
		return 0
	}
	return x.route.BodyIdleTimeout
}

// notGRPC says whether the response in x.resp is one that a gRPC client does
// not understand: it came from something before the service.
func (x *exchange) notGRPC() bool {
	return x.grpc && !x.respondedGRPC()
}

func (x *exchange) respondedGRPC() bool { return forward.IsGRPC(x.resp.Get(http1.ContentType)) }

// respondNotGRPC answers a gRPC call in place of a response that is foreign.
func (x *exchange) respondNotGRPC(o policy.Outcome) (int, policy.Outcome) {
	x.dropUpstream()
	x.stopPump()
	status := x.resp.Status
	text := fmt.Sprintf("the upstream answered with HTTP status %d and no gRPC", status)
	return x.respondGRPC(grpcStatusOf(status), o, x.reason, text)
}

// grpcStatusOf says in gRPC what an HTTP status says (gRPC, "HTTP to gRPC
// Status Code Mapping"; 4xx of our own beyond it).
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

// respondGRPC is our own answer to a gRPC call: a header that is the trailers as
// well ("Trailers-Only").
func (x *exchange) respondGRPC(status policy.GRPCStatus, o policy.Outcome, reason, text string) (int, policy.Outcome) {
	message := forward.AppendGRPCMessage(nil, "retryproxy: "+text)
	x.resp.Minor, x.resp.Status, x.resp.Phrase = 1, 200, []byte(http.StatusText(200))
	x.resp.HasHopByHopNames = false
	x.resp.Headers = append(x.resp.Headers[:0],
		http1.NewHeader("Content-Type", "application/grpc"),
		http1.NewHeader("Grpc-Status", strconv.Itoa(int(status))),
		http1.NewHeader("Grpc-Message", string(message)))
	if x.retryAfter > 0 {
		x.resp.Headers = append(x.resp.Headers, http1.NewHeader("Grpc-Retry-Pushback-Ms", strconv.Itoa(x.retryAfter*1000)))
	}
	return x.writeResponse(nil, o, reason)
}

// endGRPCCall ends a call whose answer was cut off by the upstream: the client gets
// a status, as it would from a server that fails.
func (x *exchange) endGRPCCall() error {
	x.out = http1.AppendLastChunk(x.out, []http1.Header{
		http1.NewHeader("Grpc-Status", strconv.Itoa(int(policy.GRPCUnavailable))),
		http1.NewHeader("Grpc-Message", string(forward.AppendGRPCMessage(nil, "retryproxy: the upstream ended the call before its status came"))),
	})
	return x.flush()
}
