// Package trace has the interface of a tracer and its arguments: one span per request and one per
// attempt.
package trace

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Tracer makes spans. Its methods and those of its spans are called on the request path and must
// not block. A Tracer must be safe for concurrent use; a span is used by one goroutine at a time.
type Tracer interface {
	// Request begins the span of a request whose route is known. The slices in r are valid only
	// until it returns.
	Request(r *Request) RequestSpan
}

// RequestSpan is the span of one request. End is called once, after Done of all attempts. After a
// fault of the proxy, neither is called.
type RequestSpan interface {
	// Attempt begins the span of an attempt.
	Attempt(a *Attempt) AttemptSpan
	// Waited reports a wait that is over. what is the reason of a retry, or "queued" for a wait in
	// a queue or for the end of a rate-limit pause.
	Waited(what string, began time.Time, took time.Duration)
	End(e *End)
	// TraceID returns the trace's id, 32 digits of lower-case hexadecimal, or "" if there is none.
	TraceID() string
	// Recorded reports whether the span is kept, so that its trace can be found by its id.
	Recorded() bool
}

// AttemptSpan is the span of one attempt. If Done is not called, nothing of the attempt was sent
// and it does not count.
type AttemptSpan interface {
	// Context returns the upstream's traceparent and tracestate; "" means none. If ok is false,
	// the client's own are forwarded.
	Context() (parent, state string, ok bool)
	// Done ends the span. The response of an attempt without a failure is relayed after Done.
	Done(d *AttemptEnd)
}

// Request is a request as its span begins.
type Request struct {
	Route                   string
	Method, Path, Authority []byte // the client's, of any length and content; the query is left out
	Minor                   int    // of HTTP/1
	HTTP2                   bool
	Scheme                  string // "http" or "https"
	Peer                    string // address, "unix", or ""
	Parent, State           []byte // traceparent and tracestate; Parent is nil without exactly one, State is all of its fields
	Began                   time.Time
}

// Attempt is an attempt as it begins.
type Attempt struct {
	Began    time.Time
	Resend   int           // attempts before this one
	Why      policy.Reason // of the retry; ReasonNone for a first attempt, a hedge, and an attempt at the fallback upstream
	Wait     time.Duration // before the retry
	Hedge    bool
	Fallback bool   // it is sent to the route's fallback upstream
	Host     string // the upstream's "host" or "host:port"; "" if its endpoints have different ones
	Scheme   string
}

// AttemptEnd is how an attempt ended.
type AttemptEnd struct {
	At     time.Time
	Status int // 0 if no response headers came: see Cause
	Cause  policy.Cause
	Class  policy.Class
	Left   bool   // the client left
	Peer   string // "ip:port" or a socket's path; "" if there was no connection
	Host   string // the endpoint's "host" or "host:port", if its upstream has several endpoints; else ""
}

// End is how a request ended.
type End struct {
	At       time.Time
	Code     int // the status that the client got; 0 for none
	Outcome  policy.Outcome
	Reason   string // why no further attempt was made, or why the request was refused; "" if neither
	Attempts int
}
