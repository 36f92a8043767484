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
func (cr *Request) Init(c *downstream.Conn, p *Process) {
	cr.Conn, cr.HTTP, cr.Process = c, c.Request(), p
	cr.Time.of, cr.Out.of, cr.Body.of = cr, cr, cr
}

// Begin prepares for the request that was just parsed. now is when its headers began to arrive.
func (cr *Request) Begin(set *settings.Settings, now clock.Instant) {
	cr.Time = Time{of: cr, Began: now, Clock: now}
	cr.Out.ID, cr.Out.GeneratedKey = nil, nil
	cr.Tokens.begin()
	cr.Settings, cr.Route, cr.Dest = set, set.DefaultRoute, set.DefaultRoute
	cr.headerNames = http1.HeaderNamesOf(cr.HTTP.Headers)
	cr.GRPC = cr.Conn.Stream != nil && forward.IsGRPC(cr.Get(http1.ContentType)) // gRPC needs HTTP/2
	cr.safe, cr.layered, cr.expectsContinue, cr.continued = false, false, false, false
	cr.maxRetries, cr.earlierAttempts, cr.attempts, cr.retries = 0, 0, 0, 0
	if cr.clientEnd.Load() != ClientPresent { // a load is cheaper than a store
		cr.clientEnd.Store(ClientPresent)
	}
}

// Prepare fixes what the retry rules need to know about the request, and counts it for the retry budget.
func (cr *Request) Prepare() {
	r := cr.Route
	r.UpstreamState.RetryBudget.Request(cr.Process.Clock.Since(cr.Time.Began))
	cr.Body.Reset(cr.HTTP.Body)
	cr.Conn.SizeNextRead(cr.HTTP.Body)
	cr.expectsContinue = cr.HTTP.ExpectContinue && !cr.continued && !cr.Body.ended
	if r.GenerateKey {
		cr.Out.GeneratedKey = cr.Out.generateKey()
	}
	cr.safe = r.Policy.Retryable(cr.HTTP.Method, r.GenerateKey || cr.Get(http1.IdempotencyKey) != nil)
	cr.maxRetries, cr.earlierAttempts = int32(r.Policy.MaxRetries), 0
	if cr.headerNames.HasAny(attemptCountHeaders) {
		cr.readEarlierAttempts()
	}
	if cr.headerNames.HasAny(forward.DeadlineHeaderNames) {
		cr.Time.ReadClients()
	}
	if cr.Body.framing.Kind == http1.BodyChunked {
		cr.DetachHeaders(buffer.Medium)
	}
	if cr.Body.ended {
		cr.Time.StartClock(cr.Time.Began)
	}
}

// DetachHeaders moves what was read beyond the headers to a new read buffer of at least
// n bytes, so that the spans of the headers stay valid while the body is read.
func (cr *Request) DetachHeaders(n int) {
	if !cr.headers.Owns() {
		cr.Conn.DetachHeaders(n, &cr.headers)
	}
}

// HasDetachedHeaders reports whether the headers are in a buffer of their own.
func (cr *Request) HasDetachedHeaders() bool { return cr.headers.Owns() }

// DropHeaders detaches the spans of the request, and gives back the buffer of DetachHeaders.
func (cr *Request) DropHeaders() { cr.headers.Put(nil, cr.Conn.Spans()) }

// CheckDetached panics if the request, or its detached headers, still point into b.
func (cr *Request) CheckDetached(b []byte) {
	buffer.MustNotPointInto(b, "the detached headers", cr.headers.Bytes())
	cr.HTTP.Spans(func(span []byte) { buffer.MustNotPointInto(b, "the request", span) })
}

// BeginAttempt counts an attempt and returns its number, from 1.
func (cr *Request) BeginAttempt() int {
	cr.attempts++
	return int(cr.attempts)
}

// BeginRetry counts a retry. Its attempt is counted by BeginAttempt.
func (cr *Request) BeginRetry() { cr.retries++ }

// Attempts returns how many attempts were made so far.
func (cr *Request) Attempts() int { return int(cr.attempts) }

// Retries returns how many retries were made so far.
func (cr *Request) Retries() int { return int(cr.retries) }

// IsSafe reports whether the request may run twice: it is idempotent by its method, or has an Idempotency-Key.
func (cr *Request) IsSafe() bool { return cr.safe }

// ExpectsContinue reports whether the client waits for a 100 that nobody sent yet.
func (cr *Request) ExpectsContinue() bool { return cr.expectsContinue }

// Continued says that the client was sent a 100.
func (cr *Request) Continued() { cr.expectsContinue = false }

// ClientEnd returns why the client's side ended early. It is safe for concurrent use.
func (cr *Request) ClientEnd() int32 { return cr.clientEnd.Load() }

// ClientLeft says that the client is gone. It is safe for concurrent use.
func (cr *Request) ClientLeft() { cr.clientEnd.Store(ClientGone) }

// ClientFailed says that the client's side ended with err, an error of [Body]. Only the goroutine that
// reads the body may call it.
func (cr *Request) ClientFailed(err error) {
	end := ClientGone
	cr.bodyRefusal = http1.RefusalNone
	var refused *http1.Error
	switch {
	case errors.As(err, &refused):
		end, cr.bodyRefusal = ClientBodyBroken, refused.Reason
	case errors.Is(err, ErrBodyCut):
		end = ClientBodyBroken
	case errors.Is(err, ErrBodyTooSlow):
		end = ClientTooSlow
	case errors.Is(err, ErrTurnedAway):
		end = ClientTurnedAway
	}
	cr.clientEnd.Store(end)
}

// BodyRefusal returns the rule that the body broke, after ClientFailed.
func (cr *Request) BodyRefusal() http1.Refusal { return cr.bodyRefusal }

// ClientStaysOn reports whether the client is still there and its side is in order.
func (cr *Request) ClientStaysOn() bool { return cr.clientEnd.Load() == ClientPresent }

// EndedByClient reports whether the client ended the request, in whatever way, after it reached an
// upstream or was on its way there.
func (cr *Request) EndedByClient() bool {
	end := cr.clientEnd.Load()
	switch {
	case cr.attempts == 0:
		return false
	case cr.Conn.Stream.ResponseComplete():
		return end == ClientBodyBroken
	}
	return end == ClientBodyBroken || cr.Conn.Stream.ClientGone()
}

// Has reports whether the request has a header with that name.
func (cr *Request) Has(id http1.HeaderName) bool { return cr.headerNames.Has(id) }

// Get returns the value of the request's first header with that name, or nil. Most names are
// absent, which Has shows without a look at each header.
func (cr *Request) Get(id http1.HeaderName) []byte {
	if !cr.Has(id) {
		return nil
	}
	return cr.HTTP.Get(id)
}

// WouldDropTLS reports whether a request for an https target would go to another upstream without
// TLS.
func (cr *Request) WouldDropTLS(to upstream.Target) bool {
	return cr.Settings.ForwardProxy && cr.HTTP.Form == http1.Absolute && http1.EqualFold(cr.HTTP.Scheme, "https") && to.TLS == nil
}

// Hedgeable reports whether it is useful to hedge the request. An upgrade or an event stream is a
// stream, and a gRPC call may be one.
func (cr *Request) Hedgeable() bool {
	return cr.safe && !cr.GRPC && cr.HTTP.Upgrade == nil && !bytes.Contains(cr.HTTP.Get(http1.Accept), eventStream)
}

// ClientIsProxy reports whether the client is another retryproxy. Its responses always carry the
// reason for giving up, so that it does not retry what we retried.
func (cr *Request) ClientIsProxy() bool {
	return cr.Has(http1.XRetryproxyAttempt) && cr.Conn.Peer().IsBelieved()
}

// Refusal returns why a well-formed request is not forwarded, or RefusalNone.
func (cr *Request) Refusal() http1.Refusal {
	r, q := cr.Route, cr.HTTP
	if cr.Settings.ForwardProxy && q.Form == http1.Absolute && !r.Accepts(q) {
		return http1.RefusalOtherHost
	}
	if (r.Forward.StripPrefix != "" || cr.Settings.Table.HasPaths()) &&
		cr.Settings.Table.Ambiguous(cr.Conn.Listener, q.Authority, q.Path, q.Method, q, r.Forward.StripPrefix) {
		return http1.RefusalAmbiguousPath
	}
	if r.HasBasePath() && route.Climbs(q.Path) {
		return http1.RefusalAmbiguousPath
	}
	return http1.RefusalNone
}

// FindRoute finds the route of the request. If a route or its rate limit depends on the body, it looks
// at that first.
func (cr *Request) FindRoute() {
	if len(cr.Settings.Routes) > 0 && cr.Settings.Table.HasModels() {
		cr.lookAtBody(tokens.WantModel)
		cr.Route = cr.Settings.Find(cr.Conn.Listener, cr.HTTP, withModel{cr})
	} else {
		cr.Route = cr.Settings.Find(cr.Conn.Listener, cr.HTTP, cr.HTTP)
	}
	cr.Dest = cr.Route
	if want := cr.Route.LookFor; want != 0 {
		cr.lookAtBody(want)
	}
}

// withModel finds the headers of a request, and the model in its body.
type withModel struct{ cr *Request }

// Lookup implements route.HeaderLookup.
func (w withModel) Lookup(name string) ([]byte, bool) {
	if name == route.ModelKey {
		model := w.cr.Tokens.Model()
		return model, model != nil
	}
	return w.cr.HTTP.Lookup(name)
}

// IsDraining reports whether the process ends when its requests have.
func (cr *Request) IsDraining() bool { return cr.Process.IsDraining() }

// Redirect sends the next attempts to the upstream of another route. Their headers are rendered anew.
func (cr *Request) Redirect(to *settings.RouteState) {
	cr.Dest = to
	cr.Out.Drop()
}

// IsAnsweredLocally reports whether the request is an OPTIONS or TRACE that must not be forwarded
// (RFC 9110 section 7.6.2).
func (cr *Request) IsAnsweredLocally() bool {
	n, ok := forward.MaxForwards(cr.HTTP)
	return ok && n == 0
}

// ContinueClient sends 100 Continue to a client that still waits for it, because a retry carries
// no expectation.
func (cr *Request) ContinueClient() {
	if cr.expectsContinue {
		cr.expectsContinue = false
		if cr.Conn.Continue(cr.Time.Now()) != nil {
			cr.ClientLeft()
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
func (cr *Request) readEarlierAttempts() {
	cr.earlierAttempts = int32(min(max(cr.attemptFromHeader()-1, 0), maxEarlierAttempts))
	if IsRetry(cr, cr.Conn.Peer().IsBelieved()) {
		cr.maxRetries = int32(cr.Route.LayeredRetries.MaxRetries(int(cr.maxRetries)))
		cr.layered = cr.maxRetries < 1
	}
}

// attemptFromHeader returns which attempt of another retryproxy this request is, or 0 if no
// trusted header states it. Our own header replaces the header in either case.
func (cr *Request) attemptFromHeader() int64 {
	if !cr.Conn.Peer().IsBelieved() {
		return 0
	}
	return countIn(cr, http1.XRetryproxyAttempt)
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
