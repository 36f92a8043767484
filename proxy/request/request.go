// Package request holds one request of a client: its headers and those sent upstream, its
// deadlines, its body, and what the retry rules need to know. The body is kept within the retry
// buffer so that it can be replayed. How a request is served is in package exchange.
package request

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/policy/account"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Request is one request of a client: its headers, what the retry rules need to know about it, and
// its deadlines. It belongs to its connection, which reuses it for the next request.
type Request struct {
	Conn     *downstream.Conn
	Process  *Process
	Settings *settings.Settings // the configuration in force when the request began
	Route    *settings.RouteState
	Dest     *settings.RouteState // whose upstream gets the attempt: Route, or its fallback's
	HTTP     *http1.Request

	headerNames http1.HeaderNameSet                   // names of the headers in the request
	headers     buffer.Spanned[downstream.SpanHolder] // the request's spans point into it after DetachHeaders

	Time   Time
	Out    Outgoing
	Body   Body
	Tokens *Tokens // nil: no request of the connection had to do with tokens

	GRPC            bool  // a gRPC call over HTTP/2
	safe            bool  // it may run twice: idempotent by its method, or with an Idempotency-Key
	layered         bool  // a retry of another proxy, of which we must make no more retries
	expectsContinue bool  // the client waits for a 100 that nobody sent yet
	continued       bool  // it got one before the request was prepared
	earlierAttempts int32 // attempts that proxies before us made of this request
	maxRetries      int32
	retries         int32 // retries so far
	attempts        int32 // attempts so far

	clientEnd   atomic.Int32  // why the client's side ended early
	bodyRefusal http1.Refusal // set with ClientBodyBroken
	lending     lending
}

// Reasons why the client's side ended early.
const (
	ClientPresent int32 = iota
	ClientGone
	ClientBodyBroken
	ClientTooSlow
	ClientTurnedAway // others needed its slot
)

// Init prepares the request of a connection for its first use.
func (r *Request) Init(c *downstream.Conn, p *Process) {
	r.Conn, r.HTTP, r.Process = c, c.Request(), p
	r.Time.of, r.Out.of, r.Body.of = r, r, r
}

// Begin prepares for the request that was just parsed. now is when its headers began to arrive.
func (r *Request) Begin(set *settings.Settings, now clock.Instant) {
	r.Time = Time{of: r, Began: now, Clock: now}
	r.Out.ID, r.Out.GeneratedKey = nil, nil
	r.Tokens.begin()
	r.Settings, r.Route, r.Dest = set, set.DefaultRoute, set.DefaultRoute
	r.headerNames = http1.HeaderNamesOf(r.HTTP.Headers)
	r.GRPC = r.Conn.Stream != nil && forward.IsGRPC(r.Get(http1.ContentType)) // gRPC needs HTTP/2
	r.safe, r.layered, r.expectsContinue, r.continued = false, false, false, false
	r.maxRetries, r.earlierAttempts, r.attempts, r.retries = 0, 0, 0, 0
	if r.clientEnd.Load() != ClientPresent { // a load is cheaper than a store
		r.clientEnd.Store(ClientPresent)
	}
}

// Prepare fixes what the retry rules need to know about the request, and counts it for the retry budget.
func (r *Request) Prepare() {
	route := r.Route
	route.UpstreamState.RetryBudget.Request(r.Process.Clock.Since(r.Time.Began))
	r.Body.Reset(r.HTTP.Body)
	r.Conn.SizeNextRead(r.HTTP.Body)
	r.expectsContinue = r.HTTP.ExpectContinue && !r.continued && !r.Body.ended
	if route.GenerateKey {
		r.Out.GeneratedKey = r.Out.generateKey()
	}
	r.safe = route.Policy.Retryable(r.HTTP.Method, route.GenerateKey || r.Get(http1.IdempotencyKey) != nil)
	r.maxRetries, r.earlierAttempts = int32(route.Policy.MaxRetries), 0
	if r.headerNames.HasAny(attemptCountHeaders) {
		r.readEarlierAttempts()
	}
	if r.headerNames.HasAny(forward.DeadlineHeaderNames) {
		r.Time.ReadClients()
	}
	if r.Body.framing.Kind == http1.BodyChunked {
		r.DetachHeaders(buffer.Medium)
	}
	if r.Body.ended {
		r.Time.StartClock(r.Time.Began)
	}
}

// DetachHeaders moves what was read beyond the headers to a new read buffer of at least
// n bytes, so that the spans of the headers stay valid while the body is read.
func (r *Request) DetachHeaders(n int) {
	if !r.headers.Owns() {
		r.Conn.DetachHeaders(n, &r.headers)
	}
}

// HasDetachedHeaders reports whether the headers are in a buffer of their own.
func (r *Request) HasDetachedHeaders() bool { return r.headers.Owns() }

// DropHeaders detaches the spans of the request, and gives back the buffer of DetachHeaders.
func (r *Request) DropHeaders() { r.headers.Put(nil, r.Conn.Spans()) }

// CheckDetached panics if the request, or its detached headers, still point into b.
func (r *Request) CheckDetached(b []byte) {
	buffer.MustNotPointInto(b, "the detached headers", r.headers.Bytes())
	r.HTTP.Spans(func(span []byte) { buffer.MustNotPointInto(b, "the request", span) })
}

// BeginAttempt counts an attempt and returns its number, from 1.
func (r *Request) BeginAttempt() int {
	r.attempts++
	return int(r.attempts)
}

// BeginRetry counts a retry. Its attempt is counted by BeginAttempt.
func (r *Request) BeginRetry() { r.retries++ }

// Attempts returns how many attempts were made so far.
func (r *Request) Attempts() int { return int(r.attempts) }

// Retries returns how many retries were made so far.
func (r *Request) Retries() int { return int(r.retries) }

// IsSafe reports whether the request may run twice: it is idempotent by its method, or has an Idempotency-Key.
func (r *Request) IsSafe() bool { return r.safe }

// ExpectsContinue reports whether the client waits for a 100 that nobody sent yet.
func (r *Request) ExpectsContinue() bool { return r.expectsContinue }

// Continued says that the client was sent a 100.
func (r *Request) Continued() { r.expectsContinue = false }

// ClientEnd returns why the client's side ended early. It is safe for concurrent use.
func (r *Request) ClientEnd() int32 { return r.clientEnd.Load() }

// ClientLeft says that the client is gone. It is safe for concurrent use.
func (r *Request) ClientLeft() { r.clientEnd.Store(ClientGone) }

// ClientFailed says that the client's side ended with err, an error of [Body]. Only the goroutine that
// reads the body may call it.
func (r *Request) ClientFailed(err error) {
	end := ClientGone
	r.bodyRefusal = http1.RefusalNone
	var refused *http1.Error
	switch {
	case errors.As(err, &refused):
		end, r.bodyRefusal = ClientBodyBroken, refused.Reason
	case errors.Is(err, ErrBodyCut):
		end = ClientBodyBroken
	case errors.Is(err, ErrBodyTooSlow):
		end = ClientTooSlow
	case errors.Is(err, ErrTurnedAway):
		end = ClientTurnedAway
	}
	r.clientEnd.Store(end)
}

// BodyRefusal returns the rule that the body broke, after ClientFailed.
func (r *Request) BodyRefusal() http1.Refusal { return r.bodyRefusal }

// ClientStaysOn reports whether the client is still there and its side is in order.
func (r *Request) ClientStaysOn() bool { return r.clientEnd.Load() == ClientPresent }

// EndedByClient reports whether the client ended the request, in whatever way, after it reached an
// upstream or was on its way there.
func (r *Request) EndedByClient() bool {
	end := r.clientEnd.Load()
	switch {
	case r.attempts == 0:
		return false
	case r.Conn.Stream.ResponseComplete():
		return end == ClientBodyBroken
	}
	return end == ClientBodyBroken || r.Conn.Stream.ClientGone()
}

// Has reports whether the request has a header with that name.
func (r *Request) Has(id http1.HeaderName) bool { return r.headerNames.Has(id) }

// Get returns the value of the request's first header with that name, or nil. Most names are
// absent, which Has shows without a look at each header.
func (r *Request) Get(id http1.HeaderName) []byte {
	if !r.Has(id) {
		return nil
	}
	return r.HTTP.Get(id)
}

// WouldDropTLS reports whether a request for an https target would go to another upstream without
// TLS.
func (r *Request) WouldDropTLS(to upstream.Target) bool {
	return r.Settings.ForwardProxy && r.HTTP.Form == http1.Absolute && http1.EqualFold(r.HTTP.Scheme, "https") && to.TLS == nil
}

// Hedgeable reports whether it is useful to hedge the request. An upgrade or an event stream is a
// stream, and a gRPC call may be one.
func (r *Request) Hedgeable() bool {
	return r.safe && !r.GRPC && r.HTTP.Upgrade == nil && !bytes.Contains(r.HTTP.Get(http1.Accept), eventStream)
}

// ClientIsProxy reports whether the client is another retryproxy. Its responses always carry the
// reason for giving up, so that it does not retry what we retried.
func (r *Request) ClientIsProxy() bool {
	return r.Has(http1.XRetryproxyAttempt) && r.Conn.Peer().IsBelieved()
}

// Refusal returns why a well-formed request is not forwarded, or RefusalNone.
func (r *Request) Refusal() http1.Refusal {
	q := r.HTTP
	if r.Settings.ForwardProxy && q.Form == http1.Absolute && !r.Route.Accepts(q) {
		return http1.RefusalOtherHost
	}
	if (r.Route.Forward.StripPrefix != "" || r.Settings.Table.HasPaths()) &&
		r.Settings.Table.Ambiguous(r.Conn.Listener, q.Authority, q.Path, q.Method, q, r.Route.Forward.StripPrefix) {
		return http1.RefusalAmbiguousPath
	}
	if r.Route.HasBasePath() && route.Climbs(q.Path) {
		return http1.RefusalAmbiguousPath
	}
	return http1.RefusalNone
}

// FindRoute finds the route of the request. If a route or its rate limit depends on the body, it looks
// at that first.
func (r *Request) FindRoute() {
	if len(r.Settings.Routes) > 0 && r.Settings.Table.HasModels() {
		r.lookAtBody(tokens.WantModel)
		r.Route = r.Settings.Find(r.Conn.Listener, r.HTTP, withModel{r})
	} else {
		r.Route = r.Settings.Find(r.Conn.Listener, r.HTTP, r.HTTP)
	}
	r.Dest = r.Route
	if want := r.Route.LookFor; want != 0 {
		r.lookAtBody(want)
	}
}

// withModel finds the headers of a request, and the model in its body.
type withModel struct{ r *Request }

// Lookup implements route.HeaderLookup.
func (w withModel) Lookup(name string) ([]byte, bool) {
	if name == route.ModelKey {
		model := w.r.Tokens.Model()
		return model, model != nil
	}
	return w.r.HTTP.Lookup(name)
}

// IsDraining reports whether the process ends when its requests have.
func (r *Request) IsDraining() bool { return r.Process.IsDraining() }

// Redirect sends the next attempts to the upstream of another route. Their headers are rendered anew.
func (r *Request) Redirect(to *settings.RouteState) {
	r.Dest = to
	r.Out.Drop()
}

// IsAnsweredLocally reports whether the request is an OPTIONS or TRACE that must not be forwarded
// (RFC 9110 section 7.6.2).
func (r *Request) IsAnsweredLocally() bool {
	n, ok := forward.MaxForwards(r.HTTP)
	return ok && n == 0
}

// ContinueClient sends 100 Continue to a client that still waits for it, because a retry carries
// no expectation.
func (r *Request) ContinueClient() {
	if r.expectsContinue {
		r.expectsContinue = false
		if r.Conn.Continue(r.Time.Now()) != nil {
			r.ClientLeft()
		}
	}
}

var eventStream = []byte("text/event-stream")

// maxEarlierAttempts caps the count of earlier attempts. A higher count changes nothing.
const maxEarlierAttempts = 100

// attemptCountHeaders are the headers in which clients and proxies before us send how often they
// sent the request. The vendors' clients of OpenAI, Anthropic and others send
// X-Stainless-Retry-Count.
const attemptCountHeaders = 1<<http1.XRetryproxyAttempt | 1<<http1.XEnvoyAttemptCount | 1<<http1.GRPCPreviousRPCAttempts |
	1<<http1.XStainlessRetryCount

// readEarlierAttempts reads how often proxies before us sent the request.
func (r *Request) readEarlierAttempts() {
	r.earlierAttempts = int32(min(max(r.attemptFromHeader()-1, 0), maxEarlierAttempts))
	if IsRetry(r, r.Conn.Peer().IsBelieved()) {
		r.maxRetries = int32(r.Route.LayeredRetries.MaxRetries(int(r.maxRetries)))
		r.layered = r.maxRetries < 1
	}
}

// attemptFromHeader returns which attempt of another retryproxy this request is, or 0 if no
// trusted header states it. Our own header replaces the header in either case.
func (r *Request) attemptFromHeader() int64 {
	if !r.Conn.Peer().IsBelieved() {
		return 0
	}
	return countIn(r, http1.XRetryproxyAttempt)
}

// headers returns the value of the first header with that name, or nil.
type headers interface {
	Get(id http1.HeaderName) []byte
}

// IsRetry reports whether a request with the headers h was sent before by a client or proxy. Our own
// header counts if the client is believed. The others are trusted from anyone: they can only reduce
// the sender's own retries.
func IsRetry(h headers, believed bool) bool {
	return believed && countIn(h, http1.XRetryproxyAttempt) > 1 || countIn(h, http1.XEnvoyAttemptCount) > 1 ||
		countIn(h, http1.GRPCPreviousRPCAttempts) > 0 || countIn(h, http1.XStainlessRetryCount) > 0
}

func countIn(h headers, id http1.HeaderName) int64 {
	n, ok := http1.ParseUint(h.Get(id))
	if !ok {
		return 0
	}
	return n
}

// Process is what all exchanges of a process share. It is safe for concurrent use.
type Process struct {
	Hooks
	Clock           *clock.Clock
	Attempts        *attempt.Host
	RetryBuffer     *RetryBuffer
	RateLimitPauses ratelimit.Pauses
	Accounts        account.Accounts
	withheld        atomic.Int32 // retries not made, in percent
	Waiting         atomic.Int64 // requests that wait for a retry or a permit
	Paused          atomic.Int64 // among them, requests that wait for the end of a shared rate-limit pause

	draining *atomic.Bool
	waitsEnd atomic.Int64 // while draining: when waiting for permits ends, since the start
}

// Hooks are what a process does when asked by one of its exchanges. They are safe for concurrent use.
type Hooks struct {
	OnFault           func(fault any) // called with a panic that was contained
	OnWait            func()          // called when a wait among many begins
	CloseIdleUpstream func() bool     // closes an idle connection to any upstream to free its descriptor; false: there is none
	UnderPressure     func() bool     // reports whether memory is short
}

// NewProcess returns a process, whose clock starts now. retryBuffer bounds RetryBuffer, in bytes.
func NewProcess(retryBuffer int64, hooks Hooks) *Process {
	p := &Process{Clock: clock.New(), RetryBuffer: &RetryBuffer{Limit: retryBuffer}, draining: new(atomic.Bool), Hooks: hooks}
	p.Attempts = &attempt.Host{Clock: p.Clock, UnderPressure: hooks.UnderPressure, OnFault: hooks.OnFault}
	return p
}

// ForSettings returns what all versions of the configuration share.
func (p *Process) ForSettings(ahead http2.ReadAhead) settings.Process {
	return settings.Process{Clock: p.Clock, Draining: p.draining, ReadAhead: ahead}
}

// BeginDrain begins to end the process. Requests that wait for permits do so until waitsEnd.
func (p *Process) BeginDrain(waitsEnd clock.Instant) {
	p.waitsEnd.Store(int64(p.Clock.Since(waitsEnd)))
	p.draining.Store(true)
}

// IsDraining reports whether the process ends when its requests have.
func (p *Process) IsDraining() bool { return p.draining.Load() }

// SetRetryPercent sets the percentage of retries that are made from now on, on all routes. It
// starts at 100; 0 means none. Values outside 0 to 100 are clamped. A retry that is already
// waiting is still made. The resend after a pooled connection was found closed does not count as a
// retry here; see docs/decisions/0010-retry-percent.md. It is safe for concurrent use.
func (p *Process) SetRetryPercent(percent int) {
	p.withheld.Store(100 - int32(min(max(percent, 0), 100)))
}

// RetryPercent returns the percentage that SetRetryPercent set last.
func (p *Process) RetryPercent() int { return 100 - int(p.withheld.Load()) }

// MakesRetry draws at random whether a retry is made.
func (p *Process) MakesRetry() bool {
	withheld := p.withheld.Load()
	return withheld == 0 || draw(withheld)
}

func draw(withheld int32) bool { return backoff.Shared().Int64N(100) >= int64(withheld) }

// RetryBuffer is the memory, in bytes, for request bodies and failed responses that are kept for
// retries. It is safe for concurrent use.
type RetryBuffer struct {
	Limit int64
	used  atomic.Int64
}

// InUse returns how many bytes are reserved.
func (r *RetryBuffer) InUse() int64 { return r.used.Load() }

// Take reserves n bytes. It reports false and reserves nothing if they do not fit.
func (r *RetryBuffer) Take(n int) bool {
	if r.used.Add(int64(n)) > r.Limit {
		r.used.Add(int64(-n))
		return false
	}
	return true
}

// Give returns n bytes reserved by Take.
func (r *RetryBuffer) Give(n int) { r.used.Add(int64(-n)) }
