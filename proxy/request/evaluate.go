package request

import (
	"bytes"
	"hash/maphash"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/retryafter"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Good reports whether the response with the result res is relayed without a retry.
func (cr *Request) Good(res *policy.Result) bool {
	return res.Cause == policy.CauseStatus && !cr.Route.Policy.Fails(res)
}

// Situation returns what a policy has to know about the request itself.
func (cr *Request) Situation() policy.Situation {
	return policy.Situation{
		Retries: int(cr.retries), MaxRetries: int(cr.maxRetries), Safe: cr.safe, Layered: cr.layered,
		Left: cr.Time.Left(), Elapsed: cr.Time.Since(cr.Time.Began), Draining: cr.IsDraining(),
	}
}

// RetriesReset reports whether the request is retried if the connection of its next attempt ends without a
// response, as far as is known now.
func (cr *Request) RetriesReset() bool {
	return cr.safe && cr.Body.keeping && cr.retries < cr.maxRetries && cr.Dest.RepeatsReset
}

// UrlKey returns a hash of method and path without its query, by which the Guard distinguishes URLs.
func (cr *Request) UrlKey() uint32 {
	var h maphash.Hash
	h.SetSeed(urlSeed)
	_, _ = h.Write(cr.HTTP.Method)
	path, _, _ := bytes.Cut(cr.HTTP.Path, []byte("?"))
	_, _ = h.Write(path)
	return uint32(h.Sum64()) | 1
}

// RetryWaitsInQueue is like admission.Terms.RetriesQueue.
func (cr *Request) RetryWaitsInQueue() bool {
	return cr.Route.Terms.RetriesQueue()
}

// IsIdleTimeout408 reports whether r is a 408 for an idle connection that crossed our request. A
// request that is safe to repeat can be retried (RFC 9110 section 15.5.9).
func (cr *Request) IsIdleTimeout408(r *http1.Response, reused bool) bool {
	return r.Status == 408 && r.Close && reused && cr.safe
}

// StatusOf sets res to what the policy needs to know about a response.
func (cr *Request) StatusOf(res *policy.Result, r *http1.Response) { cr.StatusAs(res, r, r.Status) }

// StatusAs is like StatusOf for a response that counts as the given status instead of its own.
func (cr *Request) StatusAs(res *policy.Result, r *http1.Response, status int) {
	*res = policy.Result{Cause: policy.CauseStatus, Status: status}
	if cr.Route.IsPlainSuccess(res) {
		return
	}
	res.Header = r
	res.Final = r.Get(http1.XRetryproxyReason) != nil
	readWait(res, r, &cr.Route.Policy)
}

// waitReaders keeps the memory for reading what headers say about a wait. It is 3 KiB, which would
// double the stack that each request in backoff keeps.
var waitReaders = sync.Pool{New: func() any { return new(retryafter.Headers) }}

// readWait sets what a response's headers say about a retry: whether the upstream wants one, and
// when. p decides whether a 403 is a rate limit.
func readWait(res *policy.Result, r *http1.Response, p *policy.Policy) {
	h := waitReaders.Get().(*retryafter.Headers)
	defer func() {
		*h = retryafter.Headers{} // it points into the response
		waitReaders.Put(h)
	}()
	h.Begin(r.Get(http1.Date), time.Now())
	for i := range r.Headers {
		if f := &r.Headers[i]; f.ID == http1.OtherHeader || f.ID == http1.RetryAfter || f.ID == http1.XShouldRetry {
			h.Add(f.Name, f.Value)
		}
	}
	res.Status = p.RetryOn.CountsAs(res.Status, h.LimitsRate)
	switch yes, no := h.ShouldRetry(); {
	case yes:
		res.Advice = policy.AdvisesRetry
	case no:
		res.Advice = policy.AdvisesNoRetry
	}
	res.RetryAfter, res.HasRetryAfter = h.Asked()
	if !res.HasRetryAfter && retryafter.MeansRateLimit(res.Status) {
		res.RetryAfter, res.HasRetryAfter = h.Renewed()
	}
}

// CutShort reports whether the client's own deadline ended the attempt before it had lasted long
// enough to show anything about the upstream. Such a client must not stop others.
func (cr *Request) CutShort(a *attempt.Attempt) bool {
	return cr.Time.Clock.Sub(a.Began()) < upstream.MinEvidence && cr.Time.TimeoutEndKind() == breaker.Abandoned
}

// CutDialShort reports whether a failed dial was cut short.
func (cr *Request) CutDialShort(a *attempt.Attempt) bool {
	return a.DialError() != nil && cr.CutShort(a)
}

// ClientKey returns a hash by which the Guard distinguishes clients: of the connection, or of the
// address for a stream of HTTP/2. Connections one after another may have the same one.
func (cr *Request) ClientKey() uint32 {
	if s := cr.Conn.Stream; s != nil {
		return uint32(maphash.String(urlSeed, s.RemoteAddr().String()))
	}
	return uint32(maphash.Comparable(urlSeed, cr.Conn))
}

var urlSeed = maphash.MakeSeed()

// StartPause begins the rate-limit pause that a 429 asks for.
func (cr *Request) StartPause(res *policy.Result) {
	if res.Status != 429 || !res.HasRetryAfter || res.RetryAfter > cr.Route.RateLimitPause.Max {
		return
	}
	key, ok := cr.Route.PauseKey(cr.HTTP, cr.Tokens.Model())
	if !ok {
		return
	}
	s := cr.Process
	now := s.Clock.Elapsed()
	if s.RateLimitPauses.Begin(key, now+res.RetryAfter, now) && cr.Settings.RateLimitPauseBegan != nil {
		cr.Settings.RateLimitPauseBegan(key, res.RetryAfter)
	}
}

// PauseTooLong reports whether the failed response asks for a wait so long that the client must
// decide.
func (cr *Request) PauseTooLong(res *policy.Result) bool {
	return res.Cause == policy.CauseStatus && res.HasRetryAfter && cr.Route.RateLimitPause.Max > 0 && res.RetryAfter > cr.Route.RateLimitPause.Max
}

// PauseLeft returns how much longer the request has to pause; 0 means not at all.
func (cr *Request) PauseLeft(now clock.Instant) time.Duration {
	s, t := cr.Process, cr.Process.Clock.Since(now)
	if !cr.Route.Terms.Pauses || !s.RateLimitPauses.AnyActive(t) {
		return 0
	}
	key, ok := cr.Route.PauseKey(cr.HTTP, cr.Tokens.Model())
	if !ok {
		return 0
	}
	left := s.RateLimitPauses.Remaining(key, t)
	if left > cr.Route.RateLimitPause.Max {
		return 0 // learnt from another process that allows longer pauses
	}
	return left
}
