package settings

import (
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// Config is everything that the data path needs. After New or Reload took it, it is read and never
// written. A field says so if Reload cannot change it.
type Config struct {
	// Listen are the addresses to accept on: "host:port" or "unix:/path". The first is the main
	// one. Not reloadable.
	Listen []string
	// TLS, from package certs, is offered to clients over TCP; nil means no TLS. A reload changes it
	// for new connections.
	TLS *tls.Config
	// InheritedListener returns an open socket for an address of Listen, which the Server then owns,
	// or nil if one is to be opened. May be nil.
	InheritedListener func(addr string) net.Listener
	// Routes in any order. Default serves the requests that none of them matches.
	Routes  []Route
	Default Route

	// TrustedProxies are the peers whose X-Forwarded-* and X-Retryproxy-* request headers are
	// believed. If it is nil, forwarded headers are appended to whoever sent them, and
	// X-Retryproxy-* is believed from loopback only.
	TrustedProxies []netip.Prefix

	// ForwardProxy refuses requests in absolute form, as clients of a forward proxy send them, whose
	// target is neither the upstream of their route nor a host of its Match.
	ForwardProxy bool
	// ProxyProtocolFrom are the peers whose connections over TCP must begin with a PROXY protocol
	// header, version 1 or 2, which says who the client is. From anyone else such a header is no
	// valid request. A reload changes it for new connections.
	ProxyProtocolFrom []netip.Prefix

	Limits http1.Limits // of request and response headers

	// MaxConnections bounds the clients connected at once; at it accepting pauses. 0 means no limit.
	// Not reloadable.
	MaxConnections int
	// ClientMemory bounds the memory that clients' connections and HTTP/2 streams may need, in bytes,
	// whatever their number. 0 means no limit. Not reloadable.
	ClientMemory int64
	// MaxConcurrentStreams is how many requests an HTTP/2 client may have in flight on one
	// connection; 0 turns HTTP/2 with clients off. MaxConnections bounds the streams of all clients
	// together as well.
	MaxConcurrentStreams  int
	ReadHeaderTimeout     time.Duration // from the first byte of request headers to the last
	ClientIdleTimeout     time.Duration // of a kept-alive client without a request
	WriteTimeout          time.Duration // of a client that takes nothing of its response
	MinBodyRate           int64         // bytes per second that a request body must average after a grace of 10 s; 0 means any
	TunnelIdleTimeout     time.Duration // of an upgraded connection without a byte in either direction
	RetryBufferTotalBytes int64         // retry buffer of the process: request bodies and buffered responses
	DrainTimeout          time.Duration // from the begin of Drain until what is left is cut off
	AccessLog             bool
	GaveUpLogPerMinute    int // log lines for given-up requests, per route and minute; more are only counted

	// ParkAfter is how long a client is idle, at least, before its connection is parked; 0 means a
	// second. PrematureEnds bounds the requests that HTTP/2 clients end at once; the zero value means
	// floodguard.DefaultLimits. Both are for tests. Not reloadable.
	ParkAfter     time.Duration
	PrematureEnds floodguard.Limits

	// Observe returns, for the name of a route, what gives each of its requests an observer when it
	// begins. It is called once per route by New and Reload. Nil observes nothing.
	Observe func(route string) func() Observer
	// Refused takes the reason of every request that was refused before it had a route. May be nil.
	Refused func(reason http1.Refusal)
	// BadDeadline takes every header with a client's deadline that could not be read. May be nil.
	BadDeadline func(field forward.DeadlineHeader)
	// RateLimitPauseBegan takes every pause that begins here or grows by a tenth of a second or more:
	// its key, a hash that is the same in every process with the same routes, and how long it lasts
	// from now. It is called on the request path and must not block. May be nil. See
	// Server.ApplyRateLimitPause.
	RateLimitPauseBegan func(key uint64, lasts time.Duration)
	// RateLimitWanted is called, often, when a request waits for a slot of a rate limit that is shared
	// with other processes: see Server.RateLimitLeaseRequests. It must not block. If it is nil, rate
	// limits are this process's alone. Not reloadable.
	RateLimitWanted func()
	// BudgetWanted is the same for retry budgets; see Server.BudgetReports.
	BudgetWanted func()
	// Journal is asked about every request that ended. May be nil.
	Journal Journal
	// Tracer makes spans, and the upstream gets traceparent and tracestate of the attempts. If it is
	// nil, the client's are forwarded. Not reloadable.
	Tracer trace.Tracer
	// Rand draws the faults of Route.FaultInjection; nil means the process's own. Safe for concurrent
	// use.
	Rand backoff.Rand
	Log  *zap.Logger // nil logs nothing
}
