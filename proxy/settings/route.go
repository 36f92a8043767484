package settings

import (
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Route is a named rule and everything that applies to the requests that match it.
type Route struct {
	Name  string
	Match route.Match

	Upstream upstream.Target // routes with equal upstreams share pool and budget
	Forward  forward.Settings
	Policy   policy.Policy
	Budget   budget.Config
	NoBudget bool

	Guard             breaker.Options      // circuit breaker and concurrency limit; routes with equal upstreams and options share them
	FailFast          bool                 // requests get 503 at once while the breaker is not closed, and are not queued
	QueueTimeout      time.Duration        // the longest wait for the breaker, without FailFast
	LimitQueueTimeout time.Duration        // the longest wait for a permit under the concurrency limit; 0 means a second
	Eject             upstream.Eject       // when endpoints of an upstream with several are ejected
	HealthCheck       upstream.HealthCheck // how the endpoints of an upstream with several are checked
	Balance           Balance              // which endpoint gets a request
	Probe             admission.Probe      // how the upstream is probed while its breaker is not closed
	QueueMax          int                  // requests queued at once per upstream; when exceeded, the oldest is dropped
	QueueOldest       bool                 // the queue serves requests in the order in which they began, and not the newest first
	RateLimitPause    RateLimitPause       // who shares the pause that a 429 asks for
	RateLimit         admission.RateLimit  // attempts and tokens that the upstream gets in a time
	CountTokens       bool                 // read how many tokens responses of a language model's API used
	Fallbacks         []Fallback           // what responds if everything else failed, in order; a response of ours can only be the last
	ModelAPI          bool                 // the upstream is the API of a language model: clients expect its error bodies, and an account may be used up
	DryRun            bool                 // forward once and count the retries that would be made: no buffering, retry, rejection or added response header

	// HedgeAfter is when a second attempt is sent beside one without a response; see
	// docs/decisions/0006-hedging.md. The zero value means never.
	HedgeAfter hedge.After

	RequestTimeout      time.Duration // of all attempts and waits, from the request being sent whole to the response headers; 0 means none
	AttemptTimeout      time.Duration // of one attempt, while a retry is still possible; 0 means none
	DialTimeout         time.Duration // to connect, TLS handshake included; 0 means upstream.DefaultDialTimeout
	AttemptTimeoutHard  bool          // AttemptTimeout applies to the last attempt too
	FirstContentTimeout time.Duration // until the first content of an event stream, from the request being sent whole; 0: streams are not held back
	BodyIdleTimeout     time.Duration // of a body in either direction, without a byte
	RetryBufferBytes    int64         // bytes kept of one request body for retries
	ResponseBufferBytes int64         // largest response, in bytes, that is buffered while a retry seeks a better one

	// ErrorCodes are the error codes and texts in a JSON body of a failed response that make a
	// retry useless; nil means apierror.Usual.
	ErrorCodes *apierror.List

	GenerateKey    bool // add an Idempotency-Key, the same for all attempts, if there is none
	LayeredRetries policy.LayeredRetries
	// ResponseChanges are made to final responses, our own included.
	ResponseChanges forward.HeaderChanges
}

// Accepts reports whether a request to a forward proxy is for this route: its target names the
// route's upstream, one of several, or a host that the route matches. It is called only for
// requests in absolute form, and keeps one service from responding for another. The dialled
// address does not depend on it: it is always the route's upstream. See
// docs/decisions/0017-proxy-protocol-and-forward-proxy.md.
func (r *Route) Accepts(q *http1.Request) bool {
	if http1.EqualFold(q.Scheme, "https") && r.Upstream.TLS == nil {
		return false // the client wants TLS end to end
	}
	// If there is a pattern, it has matched, with its port if it names one.
	byName := r.Match.Host != "" && (!slices.ContainsFunc(r.Match.Hosts(), withoutPort) || forward.PortImplied(q.Authority, q.Scheme))
	return byName || r.isUpstream(q)
}

// HasBasePath reports whether requests of the route are sent below a path.
func (r *Route) HasBasePath() bool {
	return r.Forward.BasePath != "" || slices.ContainsFunc(r.Fallbacks, func(f Fallback) bool { return f.Forward.BasePath != "" })
}

func withoutPort(host string) bool { return !forward.HasPort(host) }

func (r *Route) isUpstream(q *http1.Request) bool {
	if forward.IsHost(q.Authority, q.Scheme, r.Upstream.Host) {
		return true
	}
	for i := range r.Upstream.MoreTargets {
		if forward.IsHost(q.Authority, q.Scheme, r.Upstream.MoreTargets[i].Host) {
			return true
		}
	}
	return false
}

// OwnResponse returns the fallback that is our own response, or nil if there is none.
func (r *Route) OwnResponse() *Fallback {
	if n := len(r.Fallbacks); n > 0 && r.Fallbacks[n-1].Status != 0 {
		return &r.Fallbacks[n-1]
	}
	return nil
}

// Fallback is what responds if everything else failed. See docs/decisions/0009-fallback.md.
type Fallback struct {
	// Status and Body are the response, unless Status is 0.
	Status int // 200 to 599
	Body   []byte

	// Upstream gets the request once if Status is 0. Forward are the settings of that request.
	Upstream upstream.Target
	Forward  forward.Settings
}

// RateLimitPause is what a route does with the pause that a 429 asks for, by Retry-After or by an
// exhausted rate limit.
type RateLimitPause struct {
	// SharedBy is which requests of the route share it. If it is the zero value, or if a request lacks
	// one of its values, the request pauses for itself.
	SharedBy admission.Sharing

	// Max is the longest wait that an upstream may ask for, whatever SharedBy is; 0 means any. A
	// response that asks for a longer one is sent to the client at once, and its pause is not
	// shared.
	Max time.Duration
}

// Balance is how an upstream with several endpoints chooses one for a request. The zero value is
// the less loaded of two random endpoints.
type Balance struct {
	RoundRobin bool   // one after the other
	Header     string // the same for the same value of this request header; "" for none
}
