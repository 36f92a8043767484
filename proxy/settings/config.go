package settings

import (
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// Config is everything that the data path needs. After New or Reload took it, it must not change.
// Fields that Reload cannot change are marked as not reloadable.
type Config struct {
	// Listen are the addresses to accept on: "host:port" or "unix:/path". The first is the main
	// one. Not reloadable.
	Listen []string
	// TLS, from package certs, is offered to clients over TCP; nil means no TLS. A reload changes it
	// for new connections.
	TLS *tls.Config
	// InheritedListener returns an open socket for an address of Listen, which the Server then
	// owns, or nil if the Server must open one. It may be nil.
	InheritedListener func(addr string) net.Listener
	// Routes in any order. Default serves the requests that none of them matches.
	Routes  []Route
	Default Route

	// TrustedProxies are the peers whose X-Forwarded-* and X-Retryproxy-* request headers are
	// trusted. If it is nil, forwarded headers of any peer are kept and extended, and
	// X-Retryproxy-* is trusted from loopback only.
	TrustedProxies []netip.Prefix

	// ForwardProxy refuses requests in absolute form, as clients of a forward proxy send them, if
	// their target is neither the upstream of their route nor a host of its Match.
	ForwardProxy bool
	// ProxyProtocolFrom are the peers whose TCP connections must begin with a PROXY protocol
	// header, version 1 or 2, which contains the client's address. From any other peer such a
	// header is an invalid request. A reload changes it for new connections.
	ProxyProtocolFrom []netip.Prefix

	Limits http1.Limits // of request and response headers

	// MaxConnections bounds the clients connected at once; when it is reached, accepting pauses. 0
	// means no limit. Not reloadable.
	MaxConnections int
	// ClientMemory bounds the memory that clients' connections and HTTP/2 streams may need, in bytes,
	// whatever their number. 0 means no limit. Not reloadable.
	ClientMemory int64
	// MaxConcurrentStreams is how many requests an HTTP/2 client may have in flight on one
	// connection; 0 turns HTTP/2 with clients off. MaxConnections also bounds the streams of all
	// clients together.
	MaxConcurrentStreams  int
	ReadHeaderTimeout     time.Duration // from the first byte of request headers to the last
	ClientIdleTimeout     time.Duration // of a kept-alive client without a request
	WriteTimeout          time.Duration // of a client that reads nothing of its response
	MinBodyRate           int64         // bytes per second that a request body must average after a grace of 10 s; 0 means any
	TunnelIdleTimeout     time.Duration // of an upgraded connection without a byte in either direction
	RetryBufferTotalBytes int64         // retry buffer of the process: request bodies and buffered responses
	DrainTimeout          time.Duration // from the beginning of Drain until what is left is cut off
	AccessLog             bool
	GaveUpLogPerMinute    int // log lines for given-up requests, per route and minute; further ones are only counted

	// ParkAfter is how long a client is idle, at least, before its connection is parked; 0 means a
	// second. PrematureEnds bounds the requests that HTTP/2 clients end at once; the zero value means
	// floodguard.DefaultLimits. Both are for tests. Not reloadable.
	ParkAfter     time.Duration
	PrematureEnds floodguard.Limits

	// Observe returns, for the name of a route, a function that returns an observer for each of
	// its requests. New and Reload call it once per route. Nil observes nothing.
	Observe func(route string) func() Observer
	// Refused is called with the reason of every request that was refused before it had a route.
	// It may be nil.
	Refused func(reason http1.Refusal)
	// BadDeadline is called for every header with a client's deadline that could not be parsed. It
	// may be nil.
	BadDeadline func(field forward.DeadlineHeader)
	// RateLimitPauseBegan is called for every pause that begins here or grows by a tenth of a
	// second or more. key is a hash that is the same in every process with the same routes; lasts
	// is how long the pause lasts from now. It is called on the request path and must not block.
	// It may be nil. See Server.ApplyRateLimitPause.
	RateLimitPauseBegan func(key uint64, lasts time.Duration)
	// RateLimitWanted is called, often, when a request waits for a slot of a rate limit that is
	// shared with other processes; see Server.RateLimitLeaseRequests. It must not block. If it is
	// nil, rate limits are not shared. Not reloadable.
	RateLimitWanted func()
	// BudgetWanted is the same for retry budgets; see Server.BudgetReports.
	BudgetWanted func()
	// Journal gets every request that ended, if it wants it. It may be nil.
	Journal Journal
	// Tracer makes spans, and the upstream gets traceparent and tracestate of the attempts. If it
	// is nil, the client's are forwarded. Not reloadable.
	Tracer trace.Tracer
	Log    *zap.Logger // nil logs nothing
}
