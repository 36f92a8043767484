package request

import (
	"sync/atomic"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Request is one request of a client: its headers, what the retry rules need to know about
// it, and its deadlines. It does not know how it is being served. It belongs to its connection,
// which reuses it for the next request.
type Request struct {
	Conn     *downstream.Conn
	Process  *Process
	Settings *settings.Settings // the configuration that was in force when the request began
	Route    *settings.RouteState
	Dest     *settings.RouteState // whose upstream is asked: route, or what stands for its fallback upstream
	HTTP     *http1.Request

	HeaderNames    http1.HeaderNameSet // names of the headers in the request
	RequestHeaders []byte              // the request headers for the upstream, without what differs by attempt; nil: see renderHeaders
	HeaderBuf      []byte              // buffer with the spans of the request, after detachHeaders

	Facts

	Body            body
	ClientEnd       atomic.Int32  // why the client's side ended early
	BodyRefusal     http1.Refusal // with clientBodyBroken and clientBodyTooLarge
	ExpectsContinue bool          // the client waits for a 100 that nobody sent yet

	IDText  [forward.RandomIDLen]byte
	keyText [forward.RandomIDLen]byte
}

// Facts are what is known about a request. The zero value is that of a request that has
// just begun.
type Facts struct {
	ID           []byte // X-Request-Id
	GeneratedKey []byte // the Idempotency-Key that we gave the request

	GRPC            bool // a gRPC call over HTTP/2
	Safe            bool // it may run twice: idempotent by its method, or with an Idempotency-Key
	Layered         bool // a retry of another proxy, of which we must make no more retries
	MaxRetries      int
	EarlierAttempts int   // attempts that proxies before us made of this request
	Attempts        int   // attempts so far
	Retries         int   // retries so far
	BodyBytesSent   int64 // bytes of response bodies written to the client

	Began          clock.Instant
	Clock          clock.Instant    // time of the last tick; every step that waits ticks after the wait
	sentAt         clock.Instant    // when the request was first sent whole, or first failed
	Deadline       clock.Instant    // zero: none (yet)
	ClientLeavesAt clock.Instant    // when the client leaves, by its own words; zero: it did not say
	clientDeadline forward.Deadline // what the client said about its deadline
}

// Reasons why the client's side ended early.
const (
	ClientPresent int32 = iota
	ClientGone
	ClientBodyBroken
	ClientBodyTooLarge
	ClientTooSlow
)

// Tick reads the clock and keeps the time for the steps that follow until one waits.
// Reading it for each step would cost as much as some of the steps.
func (cr *Request) Tick() clock.Instant {
	cr.Clock = cr.Now()
	return cr.Clock
}

// Now reads the clock and does not keep the time.
func (cr *Request) Now() clock.Instant { return cr.Process.Clock.Now() }

// DetachHeaders moves what was read beyond the headers to a new read buffer of at least
// n bytes, so that the spans of the headers stay valid while the body is read.
func (cr *Request) DetachHeaders(n int) {
	c := cr.Conn
	if cr.HeaderBuf != nil {
		return
	}
	rest := c.In[c.R:c.W]
	cr.HeaderBuf = c.In
	c.In = buffer.Get(max(n, len(rest)))
	c.R, c.W = 0, copy(c.In, rest)
}

func (cr *Request) ClientStaysOn() bool { return cr.ClientEnd.Load() == ClientPresent }
