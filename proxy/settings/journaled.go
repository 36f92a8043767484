package settings

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Journal keeps some finished requests for people to look at. Both methods are called on the
// request path by many goroutines at once and must not block.
type Journal interface {
	// Wants reports whether Keep is to be called for a request that ended so. It is
	// asked for every request and should neither lock nor allocate.
	Wants(endedUnixNano int64, took time.Duration, o policy.Outcome) bool
	// Keep takes a request that Wants wanted. e is valid only until Keep
	// returns.
	Keep(e *Ended)
}

// Ended is a finished request. Method and Path are the client's, of any length and content; the
// query is left out. RequestID is at most 128 bytes of a few harmless ones, see
// forward.RequestID.
type Ended struct {
	Route        string
	Method, Path []byte
	RequestID    []byte
	Began        time.Time
	Took         time.Duration
	Code         int // what the client got; 0 for nothing
	Outcome      policy.Outcome
	Attempts     int
	Steps        []Step // the first attempts and the last, eight at most
}

// Step is one attempt.
type Step struct {
	Began  time.Duration // since the request did
	Took   time.Duration
	Status int // 0 when no response headers came; then Cause says why
	Cause  policy.Cause
	Class  policy.Class
	Addr   string              // of the endpoint; "" if none was chosen
	Dial   *upstream.DialError // why no connection was made; nil if one was
}
