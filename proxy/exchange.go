package proxy

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// exchange is one request with its attempts and its response. It belongs to its
// connection, which reuses it for the next request.
type exchange struct {
	c     *conn
	set   *settings // the configuration that was in force when the request began
	route *routeState
	req   *http1.Request

	observer Observer // of this request, after startObserving

	requestHeaders []byte // the request headers for the upstream, without what differs by attempt; nil: see renderHead
	headerBuf      []byte // buffer with the spans of the request, after detachHeaders
	idText         [forward.RandomIDLen]byte
	keyText        [forward.RandomIDLen]byte
	out            []byte      // scratch for what is written to the client or the upstream
	spareBuffers   bufferCache // kept from request to request
	vec            [8][]byte   // the parts of one write to the upstream; the pump has it while one runs
	sizeLine       [24]byte    // of the chunk that is being sent
	splice         [2]io.LimitedReader
	body           body
	requestState
	open            bool                // the observer was told of the begin and not yet of the end
	mustClose       bool                // the client's connection cannot serve another request
	grpc            bool                // a gRPC call over HTTP/2
	headerNames     http1.HeaderNameSet // names of the headers in the request
	earlierAttempts int                 // attempts that proxies before us made of this request
	maxRetries      int                 // for this request

	up       *upstream.Conn
	upReused bool
	// unchecked means that up came from the pool and was not yet checked for an end or stray bytes.
	unchecked  bool
	upGotBytes bool // the upstream got a byte of the request
	// upNotReusable means that up must not carry another request, because the upstream may see
	// another end of this one than we do.
	upNotReusable    bool
	upRespondedEarly bool  // part of the response came before the request was sent whole; belongs to the pump while it runs
	upR, upW         int   // up.Buf[upR:upW] is read and not yet used
	headerStart      int32 // up.Buf[headerStart:headerEnd] are the headers in resp, until more of the response is read
	headerEnd        int32
	upUntil          instant
	upWrite          instant
	earlyErr         error // error of reading the response before receive began
	resp             http1.Response
	respBody         responseBody
	buffered         bufferedResponse

	fault   attemptFault
	waiter  waiter // its permit, or its place in the queue
	verdict policy.Verdict

	pumping   bool // the second goroutine runs
	stop      atomic.Bool
	stopped   chan struct{}
	pumpDone  chan struct{}
	cancel    func() // cancels a dial in progress
	progress  atomic.Int32
	clientEnd atomic.Int32
	lastPiece atomic.Bool   // the pump is writing the end of the body
	pieces    atomic.Uint32 // pieces of the body that the pump has moved

	takenSeen   uint64        // bytes taken at the last check for a stuck upload
	takenAt     instant       // when takenSeen last changed
	bodyRefusal http1.Refusal // with clientBodyBroken and clientBodyTooLarge

	began        instant
	clock        instant // time of the last tick; every step that waits ticks after the wait
	attemptBegan instant // begin of the running attempt; zero between attempts
	attemptSent  instant // when the request of the attempt was sent whole
	attemptLog   attemptLog
	trace        tracing
}

// States of the request that is being sent.
const (
	sending int32 = iota
	sent
	writeFailed
)

// Reasons why the client's side ended early.
const (
	clientPresent int32 = iota
	clientGone
	clientBodyBroken
	clientBodyTooLarge
	clientTooSlow
)

func (x *exchange) init(c *conn) {
	x.c, x.req = c, &c.req
	x.respBody.x, x.buffered.x, x.body.c = x, x, c
	x.waiter.c = c
}

// begin prepares the exchange for the request that was just parsed.
func (x *exchange) begin(set *settings, now instant) {
	x.requestState = requestState{}
	x.set, x.began, x.clock = set, now, now
	x.headerNames = http1.HeaderNamesOf(x.req.Headers)
	x.grpc = x.c.stream != nil && x.isGRPCCall()
	x.route = set.fallback
	x.mustClose = x.req.Close
	if x.clientEnd.Load() != clientPresent { // reading costs less than writing
		x.clientEnd.Store(clientPresent)
	}
	x.attemptLog.reset()
}

// tick reads the clock and keeps the time for the steps that follow until one waits.
// Reading it for each step would cost as much as some of the steps.
func (x *exchange) tick() instant {
	x.clock = x.now()
	return x.clock
}

// now reads the clock and does not keep the time.
func (x *exchange) now() instant { return x.c.server.now() }

// end returns all memory of the exchange except what the next request will use.
func (x *exchange) end() {
	x.body.close()
	x.resp.Detach() // it may point into the buffered response
	x.buffered.drop()
	x.respBody.release()
	x.putHead()
	if x.requestHeaders != nil {
		x.spareBuffers.put(x.requestHeaders)
	}
	x.spareBuffers.put(x.out)
	x.requestHeaders, x.out = nil, nil
}

// serve handles the parsed request: route, retry loop, response. It reports whether the
// connection can serve another request.
func (x *exchange) serve() bool {
	x.route = x.set.find(x.c, x.req)
	x.open = true
	x.startObserving()
	if x.set.Tracer != nil {
		x.beginTrace()
	}
	code, outcome := x.prepareAndRun()
	x.done(code, outcome)
	if x.mustReset {
		x.c.abort()
	}
	return !x.mustClose && !x.mustReset
}

func (x *exchange) prepareAndRun() (int, policy.Outcome) {
	if why := x.refusal(); why != http1.RefusalNone {
		return x.refuse(why)
	}
	if x.isAnsweredLocally() {
		return x.respondToMaxForwards()
	}
	x.route.upstream.budget.Request(x.set.server.since(x.began))
	x.prepare()
	return x.run()
}

// prepare fixes what the retry rules need to know about the request.
func (x *exchange) prepare() {
	r := x.route
	x.body.reset(x.req.Body)
	x.c.sizeNextRead(x.req.Body)
	x.expectsContinue = x.req.ExpectContinue && !x.body.ended
	if r.GenerateKey {
		x.generatedKey = x.idempotencyKey()
	}
	x.safe = r.Policy.Retryable(x.req.Method, r.GenerateKey || x.get(http1.IdempotencyKey) != nil)
	x.maxRetries, x.earlierAttempts = r.Policy.MaxRetries, 0
	if x.headerNames.HasAny(attemptCountHeaders) {
		x.readEarlierAttempts()
	}
	if x.headerNames.HasAny(forward.DeadlineHeaderNames) {
		x.readClientDeadline()
	}
	x.id = forward.RequestID(x.req, x.idText[:0])
	if x.body.framing.Kind == http1.BodyChunked {
		x.detachHeaders(mediumBuffer)
	}
	if x.body.ended {
		x.startClock(x.began)
	}
}

// detachHeaders moves what was read beyond the headers to a new read buffer of at least
// n bytes, so that the spans of the headers stay valid while the body is read.
func (x *exchange) detachHeaders(n int) {
	c := x.c
	if x.headerBuf != nil {
		return
	}
	rest := c.in[c.r:c.w]
	x.headerBuf = c.in
	c.in = getBuffer(max(n, len(rest)))
	c.r, c.w = 0, copy(c.in, rest)
}

// startClock starts the deadline of the request, once: when the request was first sent
// whole, or when the first attempt ended before that.
func (x *exchange) startClock(t instant) {
	if x.sentAt.IsZero() {
		x.clockFrom(t)
	}
}

func (x *exchange) clockFrom(t instant) {
	x.sentAt = t
	if limit := x.requestTimeout(); limit > 0 {
		x.deadline = earliest(x.deadline, t.Add(limit))
	}
}

func (x *exchange) idempotencyKey() []byte {
	if x.route.DryRun || x.get(http1.IdempotencyKey) != nil {
		return nil
	}
	return forward.AppendRandomID(x.keyText[:0])
}

// startObserving tells the observer of the route that the request began. done is then
// called exactly once.
func (x *exchange) startObserving() {
	x.observer = nothing{} // in case that of the route panics
	x.observer = x.route.observer()
	x.observer.RequestBegan()
}

// done reports the request to the observer and the logs, once.
func (x *exchange) done(code int, o policy.Outcome) {
	x.open = false
	now := x.relayedAt // a moment ago
	if now.IsZero() {
		now = x.tick()
	}
	took := now.Sub(x.began)
	if o == policy.OutcomeUpgraded {
		took = x.lastEnd.Sub(x.began) // until the response: the life of a tunnel is no latency
	}
	var added time.Duration
	if x.failed {
		added = x.lastEnd.Sub(x.firstEnd)
	}
	x.observer.RequestDone(x.req.Method, code, o, took, added, x.attempts)
	x.logDone(code, o, now.Sub(x.began))
	x.keep(code, o, now, took)
	if x.trace.request != nil {
		x.endTrace(code, o, took)
	}
}
