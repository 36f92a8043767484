package settings

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Observer observes the requests of one route. A request has one observer from its beginning to
// its end. All methods are called on the request path. They must be safe for concurrent use, must
// not block and should not allocate.
type Observer interface {
	// RequestBegan is called when the route of a request is known.
	RequestBegan()
	// AttemptDone is called when an attempt ended. code is 0 if no response headers came.
	AttemptDone(class policy.Class, code int, d time.Duration)
	// Retry is called when a retry is sent, after its wait.
	Retry(reason policy.Reason)
	// WouldRetry is called, at most once per request, when a route with DryRun would retry.
	WouldRetry(reason policy.Reason)
	// Hedged is called after a hedge was sent.
	Hedged()
	// HedgeWon is called when the response to a hedge is the one that is relayed.
	HedgeWon()
	// Queued is called after a wait for the breaker, for a permit, for a slot of a rate limit, or for
	// the end of a rate-limit pause.
	Queued(waited time.Duration)
	// WaitBegan and WaitEnded are called around the wait before a retry.
	WaitBegan()
	WaitEnded(waited time.Duration)
	// FallbackFailed is called when a fallback upstream had no better response.
	FallbackFailed()
	// TokensUsed is called when it is known what became of a response that said how many tokens it
	// used.
	TokensUsed(c tokens.Count, f tokens.Fate)
	// RequestDone is called exactly once per RequestBegan. added is the time between the end of the
	// first attempt and the end of the last one; it is 0 if no attempt failed.
	RequestDone(method []byte, code int, o policy.Outcome, d, added time.Duration, attempts int)
	// Traced is called after RequestDone, with the same code and d, if the request's trace is
	// recorded.
	Traced(traceID string, code int, d time.Duration)
}

func observeNothing() Observer { return NoObserver{} }

// NoObserver observes nothing.
type NoObserver struct{}

func (NoObserver) RequestBegan() {}

func (NoObserver) AttemptDone(policy.Class, int, time.Duration) {}

func (NoObserver) Retry(policy.Reason) {}

func (NoObserver) WouldRetry(policy.Reason) {}

func (NoObserver) Hedged() {}

func (NoObserver) HedgeWon() {}

func (NoObserver) Queued(time.Duration) {}

func (NoObserver) FallbackFailed() {}

func (NoObserver) WaitBegan() {}

func (NoObserver) TokensUsed(tokens.Count, tokens.Fate) {}

func (NoObserver) WaitEnded(time.Duration) {}

func (NoObserver) RequestDone([]byte, int, policy.Outcome, time.Duration, time.Duration, int) {}

func (NoObserver) Traced(string, int, time.Duration) {}

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
	Retries      int    // those that count: not free ones, nor those after failures while the breaker was not closed
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
