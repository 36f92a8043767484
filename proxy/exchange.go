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

// exchange is one request and what becomes of it. It belongs to its
// connection, which uses it again for the next request.
type exchange struct {
	c     *conn
	set   *settings // the configuration that was in force when the request began
	route *routeState
	req   *http1.Request

	observer Observer // of this request, once it is told of it

	requestHeaders []byte // the request headers for the upstream, without what differs by attempt; nil: see renderHead
	headerBuf      []byte // the client's buffer with the request's spans, once detached
	idText         [forward.RandomIDLen]byte
	keyText        [forward.RandomIDLen]byte
	out            []byte      // scratch for what is written to the client or the upstream
	spareBuffers   bufferCache // kept over requests
	vec            [8][]byte   // the parts of one write to the upstream; the pump has it while one runs
	sizeLine       [24]byte    // of a chunk being sent
	splice         [2]io.LimitedReader
	body           body
	requestState
	open            bool                // begun for the observer and not done
	mustClose       bool                // the client's connection cannot serve another request
	grpc            bool                // a gRPC call over HTTP/2
	headerNames     http1.HeaderNameSet // of the request's fields
	earlierAttempts int                 // attempts that proxies before us made of this request
	maxRetries      int                 // of retries

	up       *upstream.Conn
	upReused bool
	// unchecked: it was taken from the pool without a look at it.
	unchecked  bool
	upGotBytes bool // it has a byte of the request
	// upNotReusable: it carries no request after this one, since the upstream may see another end of this one than we do.
	upNotReusable    bool
	upRespondedEarly bool  // some of the response came before the request was sent whole; of the pump while it runs
	upR, upW         int   // up.Buf[upR:upW] is read and not yet used
	headerStart      int32 // up.Buf[headerStart:headerEnd] is the head in resp, until more of the response is read
	headerEnd        int32
	upUntil          instant
	upWrite          instant
	earlyErr         error // what reading the response met before receive began
	resp             http1.Response
	respBody         responseBody
	buffered         bufferedResponse

	fault   attemptFault
	waiter  waiter // its place at the upstream's queue, or in the queue for one
	verdict policy.Verdict

	pumping   bool // the second goroutine runs
	stop      atomic.Bool
	stopped   chan struct{}
	pumpDone  chan struct{}
	cancel    func() // ends a dial in flight
	progress  atomic.Int32
	clientEnd atomic.Int32
	lastPiece atomic.Bool   // the pump has the end of the body in hand
	pieces    atomic.Uint32 // of bodies that the pump has moved

	takenSeen   uint64        // what was taken of them when it was last looked whether it is stuck
	takenAt     instant       // ... and since when it is the same
	bodyRefusal http1.Refusal // with clientBodyBroken and clientBodyTooLarge

	began        instant
	clock        instant // when it was last looked at: by all steps that wait, after the wait
	attemptBegan instant // the running attempt began; zero between attempts
	attemptSent  instant // ... and was sent whole
	attemptLog   attemptLog
	trace        tracing
}

// What the pump has done with the request being sent.
const (
	sending int32 = iota
	sent
	writeFailed
)

// Why the client's side ended early.
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

// begin readies the exchange for the request just parsed. It does not decide
// anything about it.
func (x *exchange) begin(set *settings, now instant) {
	x.requestState = requestState{}
	x.set, x.began, x.clock = set, now, now
	x.headerNames = http1.HeaderNamesOf(x.req.Headers)
	x.grpc = x.c.stream != nil && x.isGRPCCall()
	x.route = set.fallback
	x.mustClose = x.req.Close
	if x.clientEnd.Load() != clientPresent { // a look costs less than to write
		x.clientEnd.Store(clientPresent)
	}
	x.attemptLog.reset()
}

// tick looks at the clock, for the steps that follow until one waits. Reading
// it anew for each of them, which take microseconds, costs as much as some of
// them.
func (x *exchange) tick() instant {
	x.clock = x.now()
	return x.clock
}

// now looks at the clock without a note.
func (x *exchange) now() instant { return x.c.server.now() }

// end gives all memory of the exchange back, but for what the next one will use.
func (x *exchange) end() {
	x.body.close()
	x.resp.Detach() // it may be the one held
	x.buffered.drop()
	x.respBody.release()
	x.putHead()
	if x.requestHeaders != nil {
		x.spareBuffers.put(x.requestHeaders)
	}
	x.spareBuffers.put(x.out)
	x.requestHeaders, x.out = nil, nil
}

// serve takes the parsed request through: route, retry loop, answer. It says
// whether the connection can serve another.
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

// prepare fixes what the retry rules need to know of the request.
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

// detachHeaders moves what was read beyond the head to a new read buffer of at
// least n bytes, so that the head's spans stay while the body is read.
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

// startClock starts the request's deadline, once: when the request was first
// fully sent, or when the first attempt ended before that.
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

// startObserving tells the route's observer of the request, which from now on is done
// exactly once.
func (x *exchange) startObserving() {
	x.observer = nothing{} // should the route's panic
	x.observer = x.route.observer()
	x.observer.RequestBegan()
}

// done tells the observer and the logs, once per request.
func (x *exchange) done(code int, o policy.Outcome) {
	x.open = false
	now := x.relayedAt // a moment ago
	if now.IsZero() {
		now = x.tick()
	}
	took := now.Sub(x.began)
	if o == policy.OutcomeUpgraded {
		took = x.lastEnd.Sub(x.began) // to the response: how long a tunnel lives is no latency
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
