package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Journal keeps some finished requests for people to look at. Both methods are
// called on the request path by many goroutines at once and must not block.
type Journal interface {
	// Wants says whether Keep is to be told of a request that ended so. It is
	// asked for every request and should neither lock nor allocate.
	Wants(endedUnixNano int64, took time.Duration, o policy.Outcome) bool
	// Keep gets a request that Wants wanted; it is the callee's only until Keep
	// returns.
	Keep(e *Ended)
}

// Ended is a request that is over. Method and Path are the client's, of any
// length and content; the query is left out.
type Ended struct {
	Route        string
	Method, Path []byte
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
	Dial   *upstream.DialError // why no connection was made; nil if one was
}

// keep tells the journal of a request, if it wants it.
func (x *exchange) keep(code int, o policy.Outcome, now instant, took time.Duration) {
	j := x.set.Journal
	if j == nil || !j.Wants(x.c.server.unixNano(now), took, o) {
		return
	}
	e := Ended{
		Route: x.route.Name, Method: x.req.Method, Path: x.req.Path, Began: x.c.server.at(x.began), Took: took,
		Code: code, Outcome: o, Attempts: x.attempts, Steps: make([]Step, 0, trailLength),
	}
	for _, s := range x.attemptLog.steps[:x.attemptLog.n] {
		e.Steps = append(e.Steps, Step{Began: s.began.duration(), Took: s.took.duration(), Status: int(s.status), Cause: s.cause, Class: s.class, Dial: s.dial})
	}
	j.Keep(&e)
}
