package settings

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Journal keeps some finished requests for display. Both methods are called on the request path.
// They must be safe for concurrent use and must not block.
type Journal interface {
	// Wants reports whether Keep is to be called for a request that ended in this way. It is
	// called for every request and should neither lock nor allocate.
	Wants(endedUnixNano int64, took time.Duration, o policy.Outcome) bool
	// Keep records a request that Wants wanted. e is valid only until Keep returns.
	Keep(e *Ended)
}

// Ended is a finished request. Method and Path are the client's, of any length and content; the
// query is left out. RequestID has at most 128 bytes from a safe set; see forward.RequestID.
type Ended struct {
	Route        string
	Method, Path []byte
	RequestID    []byte
	Began        time.Time
	Took         time.Duration
	Code         int // the status that the client got; 0 for none
	Outcome      policy.Outcome
	Attempts     int
	Steps        []Step // the first attempts and the last, eight at most
}

// Step is one attempt.
type Step struct {
	Began  time.Duration // since the request began
	Took   time.Duration
	Status int // 0 if no response headers came; then see Cause
	Cause  policy.Cause
	Class  policy.Class
	Addr   string              // of the endpoint; "" if none was chosen
	Dial   *upstream.DialError // why no connection was made; nil if one was
}
