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

	head     []byte // the request head for the upstream, without what differs by attempt; nil: see renderHead
	headBuf  []byte // the caller's buffer with the request's spans, once detached
	id       []byte // X-Request-Id
	reason   string // of a refusal, for the logs
	idText   [forward.RandomIDLen]byte
	keyText  [forward.RandomIDLen]byte
	out      []byte    // scratch for what is written to the caller or the upstream
	spare    spare     // kept over requests
	vec      [8][]byte // the parts of one write to the upstream; the pump has it while one runs
	sizeLine [24]byte  // of a chunk being sent
	splice   [2]io.LimitedReader
	body     body
	open     bool // begun for the observer and not done
	expect   bool // the caller waits for a 100 that nobody sent yet
	started  bool // bytes of the final response went to the caller
	mustEnd  bool // the caller's connection cannot serve another request
	aborting bool // ... and must end in a way that looks broken
	grpc     bool // a gRPC call over HTTP/2
	safe     bool
	nested   bool
	earlier  int // attempts that proxies before us made of this request
	limit    int // of retries
	freeUsed bool
	patient  bool // no repeat is possible any more: the attempt has all the time that is left

	up       *upstream.Conn
	upReused bool
	// unseen: it was taken from the pool without a look at it.
	unseen   bool
	upAsked  bool  // it has a byte of the request
	upR, upW int   // up.Buf[upR:upW] is read and not yet used
	headAt   int32 // up.Buf[headAt:headEnd] is the head in resp, until more of the answer is read
	headEnd  int32
	upUntil  instant
	upWrite  instant
	avoid    string           // the address the last attempt failed on
	member   *upstream.Member // ... as one of several; nil where there is one, or no connection was made
	early    error            // what reading the answer met before receive began
	resp     http1.Response
	answer   responseBody
	held     held

	fault      attemptFault
	wouldRetry bool // counted, in a route that observes
	token      bool // a budget's token is taken for a retry that is not sent yet
	barred     barrier
	noAttempt  policy.Reason // why the attempt found no descriptor for its connection; none: it was made
	hedge      hedging
	failed     bool       // an attempt did
	exposed    bool       // the upstream may have seen the request
	fellBack   string     // what answered in the upstream's place, as X-Retryproxy-Fallback tells it
	madeKey    []byte     // the Idempotency-Key that we gave the request
	asked      bool       // the throttle let the attempt pass and waits to hear of it
	slot       *quotaDoor // a slot of which is taken for an attempt that is not sent yet
	waiter     waiter     // its place at the upstream's door, or in line for one
	turnedBy   policy.Verdict
	dropped    bool    // out of a full line
	holdUntil  instant // end of all waiting at a gate; zero: not begun
	retryAfter int     // for our own 503, in seconds; 0: none

	pumping   bool // the second goroutine runs
	spliced   bool // the kernel has moved some of the body; of the pump while it runs
	stop      atomic.Bool
	stopped   chan struct{}
	pumpDone  chan struct{}
	cancel    func() // ends a dial under way
	progress  atomic.Int32
	callerEnd atomic.Int32
	lastPiece atomic.Bool   // the pump has the end of the body in hand
	pieces    atomic.Uint32 // of bodies that the pump has moved

	piecesSeen uint32        // ... when it was last looked whether it is stuck
	bodyWrong  http1.Refusal // with callerBroken and callerTooLarge

	callerWaits forward.Deadline // what the caller said of its patience
	callerUntil instant          // ... and so when it leaves; zero: it did not say
	began       instant
	clock       instant // when it was last looked at: by all steps that wait, after the wait
	sentAt      instant // the request was first fully sent, or first failed
	deadline    instant // zero: none (yet)
	attempts    int
	retries     int
	wait        time.Duration
	firstEnd    instant
	lastEnd     instant
	attemptT    instant      // the running attempt began; zero between attempts
	attemptSent instant      // ... and was sent whole
	cause       policy.Cause // of the last attempt
	dialErr     *upstream.DialError
	trail       trail
	trace       tracing
}

// mostEarlier bounds what is believed of the attempts before ours; more of them
// change nothing any more.
const mostEarlier = 100

// What the pump has done with the request being sent.
const (
	sending int32 = iota
	sent
	writeFailed
)

// Why the caller's side ended early.
const (
	callerStays int32 = iota
	callerGone
	callerBroken
	callerTooLarge
	callerTooSlow
)

func (x *exchange) init(c *conn) {
	x.c, x.req = c, &c.req
	x.answer.x, x.held.x = x, x
	x.waiter.c = c
}

// begin readies the exchange for the request just parsed. It does not decide
// anything about it.
func (x *exchange) begin(set *settings, now instant) {
	x.set, x.began, x.clock = set, now, now
	x.grpc = x.isGRPCCall()
	x.route = set.fallback
	x.id, x.avoid, x.member, x.reason = nil, "", nil, ""
	x.expect, x.started, x.mustEnd, x.aborting = false, false, x.req.Close, false
	x.safe, x.nested, x.freeUsed, x.patient = false, false, false, false
	x.attempts, x.retries, x.wait = 0, 0, 0
	x.sentAt, x.deadline, x.callerUntil = 0, 0, 0
	x.firstEnd, x.lastEnd = 0, 0
	x.holdUntil, x.dropped, x.retryAfter = 0, false, 0
	x.noAttempt = policy.ReasonNone
	x.token, x.barred, x.asked, x.slot = false, barredByDoor, false, nil
	x.hedge, x.failed = hedging{}, false
	x.exposed, x.fellBack, x.spliced = false, "", false
	x.cause, x.dialErr, x.fault, x.wouldRetry = policy.CauseStatus, nil, attemptFault{}, false
	x.callerEnd.Store(callerStays)
	x.trail.reset()
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
	x.held.drop()
	x.answer.release()
	x.spare.put(x.head)
	x.spare.put(x.out)
	putBuffer(x.headBuf)
	x.head, x.out, x.headBuf = nil, nil, nil
}

// serve takes the parsed request through: route, retry loop, answer. It says
// whether the connection can serve another.
func (x *exchange) serve() bool {
	x.route = x.set.find(x.c, x.req)
	x.open = true
	x.route.observer.RequestBegan()
	x.beginTrace()
	code, outcome := x.prepareAndRun()
	x.done(code, outcome)
	if x.aborting {
		x.c.abort()
	}
	return !x.mustEnd && !x.aborting
}

func (x *exchange) prepareAndRun() (int, policy.Outcome) {
	if why := x.refusal(); why != http1.RefusalNone {
		return x.refuse(why)
	}
	if x.answersItself() {
		return x.answerMaxForwards()
	}
	x.route.upstream.budget.Request(x.set.server.since(x.began))
	x.prepare()
	return x.run()
}

// prepare renders the request head once for all attempts, and fixes what the
// retry rules need to know of the request.
func (x *exchange) prepare() {
	r := x.route
	x.body.reset(x.c, x.req.Body)
	x.c.foresee(x.req.Body)
	x.expect = x.req.ExpectContinue && !x.body.ended
	key := x.idempotencyKey()
	x.madeKey = key
	x.safe = r.Policy.Repeatable(x.req.Method, r.GenerateKey || x.req.Get(http1.IdempotencyKey) != nil)
	x.limit = r.Policy.MaxRetries
	x.earlier = int(min(max(x.countIn(http1.XRetryproxyAttempt)-1, 0), mostEarlier))
	if x.isRepeat() {
		x.limit = r.Nested.Limit(x.limit)
		x.nested = x.limit < 1
	}
	x.heedCaller()
	x.id = forward.RequestID(x.req, x.idText[:0])
	x.renderHead()
	if x.body.framing.Kind == http1.BodyChunked {
		x.detachHead(mediumBuffer)
	}
	if x.body.ended {
		x.startClock(x.began)
	}
}

// detachHead moves what was read beyond the head to a new read buffer of at
// least n bytes, so that the head's spans stay while the body is read.
func (x *exchange) detachHead(n int) {
	c := x.c
	if x.headBuf != nil {
		return
	}
	rest := c.in[c.r:c.w]
	x.headBuf = c.in
	c.in = getBuffer(max(n, len(rest)))
	c.r, c.w = 0, copy(c.in, rest)
}

// startClock starts the request's deadline, once: when the request was first
// fully sent, or when the first attempt ended before that.
func (x *exchange) startClock(t instant) {
	if !x.sentAt.IsZero() {
		return
	}
	x.sentAt = t
	if limit := x.requestTimeout(); limit > 0 {
		x.deadline = earliest(x.deadline, t.Add(limit))
	}
}

// isRepeat says whether a proxy before us sent this request before. Believing
// it from anyone is safe: it can only lower the sender's own retries.
func (x *exchange) isRepeat() bool {
	return x.countIn(http1.XRetryproxyAttempt) > 1 || x.countIn(http1.XEnvoyAttemptCount) > 1 ||
		x.countIn(http1.GRPCPreviousRPCAttempts) > 0
}

func (x *exchange) countIn(id http1.Name) int64 {
	n, ok := http1.ParseUint(x.req.Get(id))
	if !ok {
		return 0
	}
	return int64(n)
}

func (x *exchange) idempotencyKey() []byte {
	if !x.route.GenerateKey || x.route.Observe || x.req.Get(http1.IdempotencyKey) != nil {
		return nil
	}
	return forward.AppendRandomID(x.keyText[:0])
}

// done tells the observer and the logs, once per request.
func (x *exchange) done(code int, o policy.Outcome) {
	x.open = false
	now := x.tick()
	took := now.Sub(x.began)
	if o == policy.OutcomeUpgraded {
		took = x.lastEnd.Sub(x.began) // to the answer: how long a tunnel lives is no latency
	}
	var added time.Duration
	if x.failed {
		added = x.lastEnd.Sub(x.firstEnd)
	}
	x.route.observer.RequestDone(x.req.Method, code, o, took, added, x.attempts)
	x.logDone(code, o, now.Sub(x.began))
	x.keep(code, o, now, took)
	x.endTrace(code, o, took)
}
