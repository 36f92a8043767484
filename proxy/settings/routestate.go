package settings

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/internal/boundedlog"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// RouteState is a route with what its requests share.
type RouteState struct {
	*Route
	UpstreamState      *UpstreamState
	NewObserver        func() Observer // called when a request begins
	gaveUpLog          *boundedlog.Limiter
	FallbackRoutes     []*RouteState // one for each fallback upstream, in order; those of a fallback are the later ones
	IsFallback         bool          // it is one of another route's FallbackRoutes
	Hedge              *hedge.Hedge  // nil: off
	plainRetryOn       bool          // a response below 300 is never a failure
	RepeatsReset       bool          // a connection that ends without a response is a failure to retry
	rateLimitPauseSeed [sha256.Size]byte
	accounts           accounts
	Terms              *admission.Terms // of its attempts
	LookFor            tokens.Want      // in the bodies of requests
}

// RetryBudget returns the retry budget of the route, or nil if it has none.
func (r *RouteState) RetryBudget() *budget.Budget {
	if r.NoBudget {
		return nil
	}
	return r.UpstreamState.RetryBudget
}

// IsPlainSuccess reports whether the status alone shows that the response with the result res is no
// failure, as for nearly all responses.
func (r *RouteState) IsPlainSuccess(res *policy.Result) bool {
	return res.Cause == policy.CauseStatus && res.Status < 300 && r.plainRetryOn
}

// LogsGivenUp reports whether a line may be logged for one more request that was given up. If not, it counts
// the line.
func (r *RouteState) LogsGivenUp() bool { return r.gaveUpLog.Allow() }

// retriesResets reports whether p retries a request that may run twice after a connection ended
// without a response, if nothing else forbids it.
func retriesResets(p *policy.Policy) bool {
	s := policy.Situation{MaxRetries: 1, Safe: true, Replay: policy.ReplayWhole, Left: backoff.Forever}
	return p.Again(&policy.Result{Cause: policy.CauseReset}, &s).Retry
}

// plain reports whether no response below 300 can be a failure, so that most responses need no
// further check.
func plain(on policy.RetryOn) bool {
	if len(on.HeaderNames()) > 0 || on.AnyGRPC() {
		return false
	}
	for code := 100; code < 300; code++ {
		if on.Code(code) {
			return false
		}
	}
	return true
}

// observed returns the route in its effective form. With DryRun, nothing in it queues, rejects or
// retries a request or changes its response. See docs/decisions/0008-observe-and-advise.md.
func observed(r *Route) *Route {
	if !r.DryRun {
		return r
	}
	o := *r
	o.Guard = breaker.Options{NoBreaker: true, ConcurrencyLimit: breaker.ConcurrencyLimitOff}
	o.Probe, o.RateLimitPause, o.RateLimit, o.Fallbacks = admission.Probe{}, RateLimitPause{}, admission.RateLimit{}, nil
	o.HedgeAfter = hedge.After{}
	return &o
}

// fallbackTimeDivisor sets the part of a request's time that is reserved for each fallback
// upstream: a tenth. So an upstream that never responds leaves it some time.
const fallbackTimeDivisor = 10

// fallbackTimeout bounds the one attempt at a fallback upstream if neither the attempt timeout
// nor the request timeout does.
const fallbackTimeout = 10 * time.Second

// fallbackRoute returns the route for requests to a fallback upstream: the same except for the
// upstream, and without any queue.
func fallbackRoute(r *Route, f *Fallback) *Route {
	to := *r
	to.Upstream, to.Forward, to.Fallbacks = f.Upstream, f.Forward, nil
	to.HealthCheck, to.Balance = upstream.HealthCheck{}, Balance{} // these are for the route's own upstream
	to.NoBudget, to.RateLimitPause, to.FailFast, to.Probe = true, RateLimitPause{}, true, admission.Probe{}
	to.HedgeAfter, to.RateLimit = hedge.After{}, admission.RateLimit{}
	if to.AttemptTimeout == 0 && to.RequestTimeout == 0 {
		to.AttemptTimeout = fallbackTimeout
	}
	return &to
}

// OwnShare returns d without the part that is reserved for fallback upstreams.
func (r *RouteState) OwnShare(d time.Duration) time.Duration {
	return d - d/fallbackTimeDivisor*time.Duration(len(r.FallbackRoutes))
}

// traced returns the route in its form with a Tracer.
func traced(r *Route) *Route {
	t := *r
	t.Forward.OmitTrace = true
	t.Fallbacks = slices.Clone(r.Fallbacks)
	for i := range t.Fallbacks {
		t.Fallbacks[i].Forward.OmitTrace = true
	}
	return &t
}

// pauseSeed returns the part of a pause key that all requests of a route share.
func pauseSeed(r *Route) [sha256.Size]byte {
	by := &r.RateLimitPause.SharedBy
	text := "rate-limit-pause\x00" + r.Upstream.String() + "\x00" + r.Name + "\x00" + by.Header
	if by.Model {
		text += "\x00model"
	}
	return sha256.Sum256([]byte(text))
}

// PauseKey returns what a request shares a rate-limit pause by. model is the one in its body, nil if
// that does not say. It reports false if it shares none. The key is the same in every process with the
// same route to the same upstream. It is a cryptographic hash, so that no client can make a value that
// pauses another's requests.
func (r *RouteState) PauseKey(req *http1.Request, model []byte) (uint64, bool) {
	if r.RateLimitPause.SharedBy.None() {
		return 0, false
	}
	return r.RateLimitPause.SharedBy.Key(r.rateLimitPauseSeed, req, model)
}

// lookFor returns what is to be found in the bodies of requests.
func (r *RouteState) lookFor() (want tokens.Want) {
	if r.RateLimitPause.SharedBy.Model || r.Terms.RateLimits != nil && r.RateLimit.SharedBy.Model {
		want |= tokens.WantModel
	}
	if r.Terms.RateLimits != nil && r.Terms.RateLimits.CountsTokens() {
		want |= tokens.WantOutput | tokens.WantInput
	}
	return want
}

// hedgeKey is what must stay unchanged over a reload for learnt latencies to stay valid.
type hedgeKey struct {
	route    string
	upstream upstreamKey
	after    hedge.After
}

// learnt returns the hedges of n with their learnt latencies. n may be nil.
func (n *Settings) learnt() map[hedgeKey]*hedge.Hedge {
	known := map[hedgeKey]*hedge.Hedge{}
	if n != nil {
		for _, r := range n.All {
			if r.Hedge != nil {
				known[hedgeKey{r.Name, r.UpstreamState.key, r.HedgeAfter}] = r.Hedge
			}
		}
	}
	return known
}

// hedgeOf returns the hedge of the route, with the latencies learnt under the previous
// configuration.
func (n *Settings) hedgeOf(r *RouteState) *hedge.Hedge {
	if r.HedgeAfter.Slow() && r.UpstreamState.Pool.Fixed() {
		return nil
	}
	if h := n.hedges[hedgeKey{r.Name, r.UpstreamState.key, r.HedgeAfter}]; h != nil {
		return h
	}
	return hedge.New(r.HedgeAfter)
}

// MayHedge reports whether attempts of the route may get a hedge. A hedge in the place of an attempt timeout
// needs another endpoint, which there may be as long as no lookup says otherwise.
func (r *RouteState) MayHedge() bool {
	return r.Hedge != nil && !(r.HedgeAfter.Slow() && r.UpstreamState.Pool.Single())
}

// HasHedgeEndpoint reports whether a hedge has an endpoint now. See MayHedge.
func (r *RouteState) HasHedgeEndpoint() bool {
	return !r.HedgeAfter.Slow() || r.UpstreamState.Pool.Several()
}

// terms returns those on which attempts of the route are admitted.
func (r *RouteState) terms(limits *admission.RateLimits) *admission.Terms {
	tokens := r.UpstreamState.BudgetQueue
	if r.NoBudget {
		tokens = nil
	}
	return &admission.Terms{
		Queue: r.UpstreamState.Admission, Tokens: tokens, RateLimits: limits, RateLimitWait: r.RateLimit.Wait,
		Pauses: !r.RateLimitPause.SharedBy.None(), Queues: !r.FailFast, QueueTimeout: r.QueueTimeout, LimitQueueTimeout: r.LimitQueueTimeout,
	}
}
