package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Tracer makes spans: one per request and one per attempt. All methods, its own
// and those of what it gives, are called on the request path and must not
// block. A Tracer is called by many goroutines at once, what it gives by one at
// a time.
type Tracer interface {
	// Request begins the span of a request that has found its route. The
	// slices in r are the callee's only until it returns.
	Request(r *TraceRequest) RequestSpan
}

// RequestSpan is the span of one request. Its End is called once, after the
// Done of all attempts; neither is after a fault of the proxy.
type RequestSpan interface {
	// Attempt begins the span of an attempt.
	Attempt(a *TraceAttempt) AttemptSpan
	// Waited tells of a wait that is over: for what (the reason of a retry, or
	// "held" for a wait at the upstream's queue or for the end of a rate-limit pause).
	Waited(what string, began time.Time, took time.Duration)
	End(e *TraceEnd)
	// TraceID is the trace's id, 32 digits of lower-case hexadecimal; "" for none.
	TraceID() string
}

// AttemptSpan is the span of one attempt. One whose Done is not called was no
// attempt: nothing of it was sent.
type AttemptSpan interface {
	// Context is what the upstream gets as traceparent and tracestate ("": none).
	// Not ok: both go on as the client sent them.
	Context() (parent, state string, ok bool)
	// Done tells what the attempt brought. The response of one without a failure
	// is still to be relayed.
	Done(d *TraceAttemptEnd)
}

// TraceRequest is a request as its span begins.
type TraceRequest struct {
	Route                   string
	Method, Path, Authority []byte // the client's, of any length and content; the query is left out
	Minor                   int    // of HTTP/1
	HTTP2                   bool
	Scheme                  string // "http" or "https"
	Peer                    string // address, "unix", or ""
	Parent, State           []byte // traceparent and tracestate; Parent is nil without exactly one, State is all of its fields
	Began                   time.Time
}

// TraceAttempt is an attempt as it begins.
type TraceAttempt struct {
	Began    time.Time
	Resend   int           // attempts before this one
	Why      policy.Reason // of the retry; ReasonNone for a first attempt, a hedge and the fallback's
	Wait     time.Duration // before the retry
	Hedge    bool
	Fallback bool   // it goes to the route's fallback upstream
	Host     string // the upstream's "host" or "host:port"; of several, the first one's
	Scheme   string
}

// TraceAttemptEnd is what an attempt brought.
type TraceAttemptEnd struct {
	At     time.Time
	Status int // 0 when no response headers came; then Cause says why
	Cause  policy.Cause
	Class  policy.Class
	Left   bool   // the client ended it
	Peer   string // "ip:port" or a socket's path; "" when no connection was made
}

// TraceEnd is how a request ended.
type TraceEnd struct {
	At       time.Time
	Code     int // what the client got; 0 for nothing
	Outcome  policy.Outcome
	Reason   string // why no more was tried, or why it was refused; "" where there is nothing to tell
	Attempts int
}

// tracing is what an exchange knows of its spans.
type tracing struct {
	request RequestSpan // nil: off
	attempt AttemptSpan // the running one
	peer    string      // whom it went to; "" before there is a connection
	why     policy.Reason
	wait    time.Duration
}

// traced is the route as it runs beside a Tracer.
func traced(r *Route) *Route {
	t := *r
	t.Forward.OmitTrace = true
	if r.Fallback != nil {
		f := *r.Fallback
		f.Forward.OmitTrace = true
		t.Fallback = &f
	}
	return &t
}

// beginTrace begins the request's span.
func (x *exchange) beginTrace() {
	parent, state := forward.TraceContext(x.req)
	x.trace.request = x.set.Tracer.Request(&TraceRequest{
		Route: x.route.Name, Method: x.req.Method, Path: x.req.Path, Authority: x.req.Authority,
		Minor: x.req.Minor, HTTP2: x.c.stream != nil, Scheme: x.c.peer.Proto(), Peer: x.c.peer.Text,
		Parent: parent, State: state, Began: x.c.server.at(x.began),
	})
}

// traceAttempt begins the span of an attempt that begins.
func (x *exchange) traceAttempt(began instant, hedge bool) AttemptSpan {
	t := &x.trace
	if t.request == nil {
		return nil
	}
	if !hedge {
		t.peer = ""
	}
	target := &x.route.Upstream
	a := TraceAttempt{Began: x.c.server.at(began), Resend: x.attempts - 1, Hedge: hedge, Fallback: x.route.isSpare, Host: target.Host, Scheme: "http"}
	if target.TLS != nil {
		a.Scheme = "https"
	}
	if !hedge && !a.Fallback {
		a.Why, a.Wait = t.why, t.wait
	}
	return t.request.Attempt(&a)
}

// connected notes whom the running attempt goes to.
func (t *tracing) connected(up *upstream.Conn) {
	if t.attempt != nil {
		t.peer = up.Addr
	}
}

// attemptTraced ends the span of an attempt. peer is where it went.
func (x *exchange) attemptTraced(s AttemptSpan, a *policy.Attempt, class policy.Class, peer string) {
	if s == nil {
		return
	}
	e := TraceAttemptEnd{At: x.c.server.at(x.clock), Cause: a.Cause, Class: class, Left: !x.clientStaysOn(), Peer: peer}
	if a.Cause == policy.CauseStatus {
		e.Status = a.Status
	}
	s.Done(&e)
}

// traceWait tells of a wait that began at began and is over now.
func (x *exchange) traceWait(what string, began instant) {
	if x.trace.request != nil {
		x.trace.request.Waited(what, x.c.server.at(began), x.clock.Sub(began))
	}
}

const waitHeld = "held"

// endTrace ends the request's span.
func (x *exchange) endTrace(code int, o policy.Outcome, took time.Duration) {
	x.trace.request.End(&TraceEnd{At: x.c.server.at(x.began).Add(took), Code: code, Outcome: o, Reason: x.reason, Attempts: x.attempts})
	x.trace = tracing{}
}

// appendTrace appends the fields of an attempt's span.
func (x *exchange) appendTrace(headers []byte, s AttemptSpan) []byte {
	parent, state, ok := s.Context()
	if !ok {
		return forward.AppendClientTrace(headers, x.req)
	}
	headers = http1.AppendHeader(headers, "traceparent", parent)
	if state != "" {
		headers = http1.AppendHeader(headers, "tracestate", state)
	}
	return headers
}
