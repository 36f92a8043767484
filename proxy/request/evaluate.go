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
func (r *Request) Good(res *policy.Result) bool {
	return res.Cause == policy.CauseStatus && !r.Route.Policy.Fails(res)
}

// Situation returns what a policy has to know about the request itself.
func (r *Request) Situation() policy.Situation {
	return policy.Situation{
		Retries: int(r.retries), MaxRetries: int(r.maxRetries), Safe: r.safe, Layered: r.layered,
		Left: r.Time.Left(), Elapsed: r.Time.Since(r.Time.Began), Draining: r.IsDraining(),
	}
}

// RetriesReset reports whether the request is retried if the connection of its next attempt ends without a
// response, as far as is known now.
func (r *Request) RetriesReset() bool {
	return r.safe && r.Body.keeping && r.retries < r.maxRetries && r.Dest.RepeatsReset
}

// UrlKey returns a hash of method and path without its query, by which the Guard distinguishes URLs.
func (r *Request) UrlKey() uint32 {
	var h maphash.Hash
	h.SetSeed(urlSeed)
	_, _ = h.Write(r.HTTP.Method)
	path, _, _ := bytes.Cut(r.HTTP.Path, []byte("?"))
	_, _ = h.Write(path)
	return uint32(h.Sum64()) | 1
}

// RetryWaitsInQueue is like admission.Terms.RetriesQueue.
func (r *Request) RetryWaitsInQueue() bool {
	return r.Route.Terms.RetriesQueue()
}

// IsIdleTimeout408 reports whether resp is a 408 for an idle connection that crossed our request. A
// request that is safe to repeat can be retried (RFC 9110 section 15.5.9).
func (r *Request) IsIdleTimeout408(resp *http1.Response, reused bool) bool {
	return resp.Status == 408 && resp.Close && reused && r.safe
}

// StatusOf sets res to what the policy needs to know about a response.
func (r *Request) StatusOf(res *policy.Result, resp *http1.Response) {
	r.StatusAs(res, resp, resp.Status)
}

// StatusAs is like StatusOf for a response that counts as the given status instead of its own.
func (r *Request) StatusAs(res *policy.Result, resp *http1.Response, status int) {
	*res = policy.Result{Cause: policy.CauseStatus, Status: status}
	if r.Route.IsPlainSuccess(res) {
		return
	}
	res.Header = resp
	res.Final = resp.Get(http1.XRetryproxyReason) != nil
	readWait(res, resp, &r.Route.Policy)
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
func (r *Request) CutShort(a *attempt.Attempt) bool {
	return r.Time.Clock.Sub(a.Began()) < upstream.MinEvidence && r.Time.TimeoutEndKind() == breaker.Abandoned
}

// CutDialShort reports whether a failed dial was cut short.
func (r *Request) CutDialShort(a *attempt.Attempt) bool {
	return a.DialError() != nil && r.CutShort(a)
}

// ClientKey returns a hash by which the Guard distinguishes clients: of the connection, or of the
// address for a stream of HTTP/2. Connections one after another may have the same one.
func (r *Request) ClientKey() uint32 {
	if s := r.Conn.Stream; s != nil {
		return uint32(maphash.String(urlSeed, s.RemoteAddr().String()))
	}
	return uint32(maphash.Comparable(urlSeed, r.Conn))
}

var urlSeed = maphash.MakeSeed()

// StartPause begins the rate-limit pause that a 429 asks for.
func (r *Request) StartPause(res *policy.Result) {
	if res.Status != 429 || !res.HasRetryAfter || res.RetryAfter > r.Route.RateLimitPause.Max {
		return
	}
	key, ok := r.Route.PauseKey(r.HTTP, r.Tokens.Model())
	if !ok {
		return
	}
	s := r.Process
	now := s.Clock.Elapsed()
	if s.RateLimitPauses.Begin(key, now+res.RetryAfter, now) && r.Settings.RateLimitPauseBegan != nil {
		r.Settings.RateLimitPauseBegan(key, res.RetryAfter)
	}
}

// PauseTooLong reports whether the failed response asks for a wait so long that the client must
// decide.
func (r *Request) PauseTooLong(res *policy.Result) bool {
	return res.Cause == policy.CauseStatus && res.HasRetryAfter && r.Route.RateLimitPause.Max > 0 && res.RetryAfter > r.Route.RateLimitPause.Max
}

// PauseLeft returns how much longer the request has to pause; 0 means not at all.
func (r *Request) PauseLeft(now clock.Instant) time.Duration {
	s, t := r.Process, r.Process.Clock.Since(now)
	if !r.Route.Terms.Pauses || !s.RateLimitPauses.AnyActive(t) {
		return 0
	}
	key, ok := r.Route.PauseKey(r.HTTP, r.Tokens.Model())
	if !ok {
		return 0
	}
	left := s.RateLimitPauses.Remaining(key, t)
	if left > r.Route.RateLimitPause.Max {
		return 0 // learnt from another process that allows longer pauses
	}
	return left
}
