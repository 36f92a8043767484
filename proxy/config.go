package proxy

import (
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Config is all that the data path needs. It is read, never written, after
// New or Reload got it; a field says so where a reload cannot change it.
type Config struct {
	// Listen are the addresses to accept on: "host:port" or "unix:/path".
	// The first is the main one. Not reloadable.
	Listen []string
	// TLS, from package certs, is what clients over TCP meet; nil: they come
	// without TLS. A reload changes it for new connections.
	TLS *tls.Config
	// InheritedListener is an open socket for an address of Listen, which becomes the
	// Server's to close, or nil where one is to be opened. May be nil.
	InheritedListener func(addr string) net.Listener
	// Routes in any order; Default serves what none of them matches.
	Routes  []Route
	Default Route

	// TrustedProxies are the peers whose X-Forwarded-* and X-Retryproxy-*
	// request headers are believed. Nil: forwarded fields are appended to
	// whoever sent them, control fields are believed from loopback only.
	TrustedProxies []netip.Prefix

	// ForwardProxy refuses requests in absolute form, as clients of a forward proxy
	// send them, that are not for the route that takes them: their target names
	// neither its upstream nor a host of its Match.
	ForwardProxy bool
	// ProxyProtocolFrom are the peers whose connections over TCP have to begin with
	// a header of the PROXY protocol, version 1 or 2, which says who the client is.
	// From anyone else such a header is no valid request. A reload changes it for
	// new connections.
	ProxyProtocolFrom []netip.Prefix

	Limits http1.Limits // of a request or response headers

	MaxConnections int // clients at once; at it accepting pauses; 0 = no limit. Not reloadable.
	// ClientMemory bounds the memory that clients' connections and HTTP/2 streams may
	// need, in bytes, whatever their number; 0 = no limit. Not reloadable.
	ClientMemory int64
	// MaxConcurrentStreams is how many requests an HTTP/2 client may have under
	// way on one connection; 0: no HTTP/2 is spoken with clients. The streams
	// of all clients together are bounded by MaxConnections, as the clients are.
	MaxConcurrentStreams  int
	ReadHeaderTimeout     time.Duration // from a head's first byte to its last
	ClientIdleTimeout     time.Duration // a kept-alive client without a request
	WriteTimeout          time.Duration // a client that reads nothing for so long is cut off
	MinBodyRate           int64         // bytes a second a client's body must average after a grace of 10 s; 0 = none
	TunnelIdleTimeout     time.Duration // an upgraded connection without a byte in either direction
	RetryBufferTotalBytes int64         // retry buffer of the process, bodies and held responses
	DrainTimeout          time.Duration // from Drain's begin to the hard end
	AccessLog             bool
	GaveUpLogPerMinute    int // lines for given-up requests per route and minute before they are only counted

	parkAfter time.Duration   // of tests; 0: the constant
	premature prematureLimits // likewise

	// Observe gives by a route's name, at New and Reload, once per route, what
	// gives each of its requests an observer when it begins. Nil observes nothing.
	Observe func(route string) func() Observer
	// Refused is told the label of every request refused before it had a
	// route. May be nil.
	Refused func(reason http1.Refusal)
	// BadDeadline is told every field about a client's patience that could not
	// be read. May be nil.
	BadDeadline func(field forward.DeadlineHeader)
	// RateLimitPauseBegan is told of every pause that begins here or grows by a tenth
	// of a second or more: its key, a hash that is the same in every process with
	// the same routes, and how long it lasts from now. Called on the request path:
	// it must not block. May be nil. See Server.ApplyRateLimitPause.
	RateLimitPauseBegan func(key uint64, lasts time.Duration)
	// RateLimitWanted, where rate limits are shared with other processes, is told that a
	// request waits for a slot, often: see Server.RateLimitLeaseRequests. It must not block. Nil: they
	// are this process's alone. Not reloadable.
	RateLimitWanted func()
	// BudgetWanted is the same for retry budgets; see Server.BudgetReports.
	BudgetWanted func()
	// Journal is asked about every request that ended. May be nil.
	Journal Journal
	// Tracer makes spans, and with it traceparent and tracestate are those of
	// the attempts. Nil: both go on as they came. Not reloadable.
	Tracer Tracer
	// Rand draws the faults of Route.Faults; nil: the process's own. Safe for
	// concurrent use.
	Rand policy.Rand
	Log  *zap.Logger // nil logs nothing
}

// Route is a named rule and everything that applies to the requests it takes.
type Route struct {
	Name  string
	Match route.Match

	Upstream upstream.Target // upstreams that are equal share pool and budget
	Forward  forward.Settings
	Policy   policy.Policy
	Budget   policy.BudgetConfig
	NoBudget bool

	Guard             policy.GuardOptions   // breaker and limit; upstreams that are equal share them too
	Breaker           BreakerMode           // what becomes of requests while the breaker is not closed
	QueueTimeout      time.Duration         // the longest a request is held at the breaker, with BreakerQueue
	LimitQueueTimeout time.Duration         // the longest a request waits for a permit under the concurrency limit; 0 = a second
	Eject             Eject                 // when addresses of an upstream with several are left out
	Probe             Probe                 // how the upstream is probed while its breaker is not closed
	QueueMax          int                   // requests queued or queued at once per upstream; beyond, the oldest is dropped
	QueueOrder        QueueOrder            // which of them is served first
	RateLimitPause    RateLimitPause        // who shares the pause that a 429 asks for
	RateLimit         RateLimit             // how many attempts the upstream may be sent in a time
	ClientThrottling  bool                  // turn requests away while the upstream rejects nearly all; upstreams that are equal share it
	Fallback          *Fallback             // what answers when all else failed; nil: nothing
	DryRun            bool                  // forward once and count the retries that would be made; nothing is held, repeated, turned away or added to a response
	FaultInjection    *policy.FaultInjector // made up below the retry loop, for trying policies out; nil: none. Such a route shares no breaker, limit, budget and connections with others

	// HedgeAfter is when a second attempt is sent beside one that was not
	// answered yet; see docs/decisions/0006-hedging.md. Zero: never.
	HedgeAfter policy.HedgeAfter

	RequestTimeout      time.Duration // all attempts and waits, from the request being fully sent to the response headers; 0 = none
	AttemptTimeout      time.Duration // one attempt, while a retry is still possible; 0 = none
	BodyIdleTimeout     time.Duration // a body, either way, without a byte
	MaxBodyBytes        int64         // larger request bodies are refused with 413; 0 = no limit
	RetryBufferBytes    int64         // kept of one request body for retries
	ResponseBufferBytes int64         // largest response held while a better one is sought

	GenerateKey     bool // add an Idempotency-Key, the same over all attempts, where there is none
	LayeredRetries  policy.LayeredRetries
	ResponseHeaders bool // X-Retryproxy-Attempts and -Reason for the client
}

// Observer is told what becomes of requests of one route; one request has the
// same from its beginning to its end. All methods are called on the request
// path, where many requests have the same observer by many goroutines at once:
// they must not block and should not allocate.
type Observer interface {
	RequestBegan()
	// AttemptDone: code 0 when no response headers came.
	AttemptDone(class policy.Class, code int, d time.Duration)
	// Retry is called when a retry is sent, after its wait.
	Retry(reason policy.Reason)
	// WouldRetry is called, at most once per request, when a retry would be made
	// of a route that only observes.
	WouldRetry(reason policy.Reason)
	// Hedged is called when it is known that a hedge was sent, HedgeWon when its
	// answer was the one relayed.
	Hedged()
	HedgeWon()
	// Queued is called after a wait at the upstream's queue, at the breaker or for a
	// place under the limit, and after one for the end of a rate-limit pause.
	Queued(waited time.Duration)
	// FaultInjected is called when a fault of Route.Faults is drawn for an attempt.
	FaultInjected(kind policy.FaultKind)
	WaitBegan()
	WaitEnded(waited time.Duration)
	// FallbackFailed is called when a fallback upstream had no better response.
	FallbackFailed()
	// RequestDone is called exactly once per RequestBegan. added is the time
	// between the first attempt's end and the last attempt's end (0 when none failed).
	RequestDone(method []byte, code int, o policy.Outcome, d, added time.Duration, attempts int)
}
