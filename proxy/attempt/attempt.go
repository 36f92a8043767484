// Package attempt makes one send of a request and reads the response to it: it gets a connection, sends
// headers and body, waits for the response, and races a hedge if its owner starts one. Only an Attempt
// knows of its connection, its buffer, its deadlines and its progress. It knows the client by Client
// and Source, and who decides by Owner. It has no notion of routes, retries or admission.
//
// Use it so: Env.New makes an attempt, Begin and Make send it. After CauseStatus, Response and Body are
// the response, and the attempt ends with Release, Keep, Drop or Abandon. After CauseAttemptTimeout it
// can be continued by Resume. See [Attempt.StartHedge] for hedges.
package attempt

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/trace"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// Host is what all attempts of a server share.
type Host struct {
	Clock *clock.Clock
	// UnderPressure reports whether memory is short. Buffers then stay small, here and in the system.
	UnderPressure func() bool
	// OnFault is called with a panic of another goroutine that was contained.
	OnFault func(fault any)
}

// Env is what all attempts of a request share.
type Env struct {
	Host    *Host
	Buffers *buffer.Cache // the source of read buffers
	Client  Client
	Owner   Owner
}

// Options are what an attempt must know about its request beforehand.
type Options struct {
	Limits      http1.Limits  // of the headers and the trailers of the response
	BodyIdle    time.Duration // how long a body may pause; 0: no limit
	Timeout     time.Duration // how long the response may take; 0: no limit
	HedgeAfter  time.Duration // when a hedge is due after the request was sent whole; 0: never
	Form        wire.Form     // how header sections are written for the client
	Upgrade     bool          // the client asks for another protocol
	Expect      bool          // the client waits for a 100
	Interactive bool          // the client may wait for a response before it sends more of its body
}

// Attempt is one send of a request to an upstream, and the response to it. It owns its upstream
// connection with the read buffer, the parser and the deadlines, and the goroutine that sends the body.
// A first attempt, a retry, a hedge and a send to a fallback upstream are attempts alike. It is not safe
// for concurrent use.
type Attempt struct {
	options Options

	span   trace.AttemptSpan // nil: not traced
	began  clock.Instant     // zero: the attempt is not running
	sentAt clock.Instant     // when the request was sent whole

	conn     conn
	endpoint *upstream.Endpoint  // where it was sent, if the upstream has several endpoints
	addr     string              // the endpoint's address; "" before there was a connection
	dialErr  *upstream.DialError // why dialling failed
	reused   bool                // the connection has carried another request before
	// unchecked means that the connection came from the pool and was not checked for an end or stray
	// bytes yet.
	unchecked bool
	gotBytes  bool         // the upstream got a byte of the request
	overtaken bool         // the other attempt of the hedged request was first
	progress  atomic.Int32 // of sending the request; the pump's too
	number    int32        // among the request's attempts, from 1
	took      uint32       // microseconds until it had its result and one, if the other attempt of the race went on; 0: until End

	upload upload
	body   Body

	hedge      *Attempt    // the hedge beside this attempt; nil: none
	background *background // the goroutine that makes the attempt as a hedge; nil: the caller of Make does
}

// States of progress.
const (
	sending int32 = iota
	sent
	writeFailed
)

// New makes an attempt.
func (e *Env) New() *Attempt {
	a := new(Attempt)
	a.Init(e)
	return a
}

// Init makes a an attempt of the request of e.
func (a *Attempt) Init(e *Env) {
	a.upload.a = a
	a.conn.env, a.conn.buffers = e, e.Buffers
}

func (a *Attempt) client() Client { return a.conn.env.Client }
func (a *Attempt) source() Source { return a.client().Source() }
func (a *Attempt) owner() Owner   { return a.conn.env.Owner }
func (a *Attempt) host() *Host    { return a.conn.env.Host }

// Begin prepares for the n-th send of the request, which begins at the time at.
func (a *Attempt) Begin(n int, at clock.Instant, span trace.AttemptSpan, o Options) {
	a.options, a.number, a.began, a.span = o, int32(n), at, span
	a.endpoint, a.addr, a.dialErr = nil, "", nil
	a.upload.spliced = false
	a.hedge, a.overtaken, a.took = nil, false, 0
}

// Make sends the request once and waits for the response headers. After CauseStatus, Response has them,
// and Body can be read. After CauseAttemptTimeout, and if the client left while it was in flight, the
// connection stays open for Resume. A connection that the upstream had closed before anything was sent is replaced. If fresh is
// set, the connection is dialled now.
func (a *Attempt) Make(fresh bool) policy.Cause {
	for {
		if cause := a.connect(fresh); cause != policy.CauseStatus {
			return cause
		}
		if !a.client().ClientStaysOn() {
			a.Drop()
			return policy.CauseDial // the client left during the dial: nothing is sent
		}
		switch end := a.upload.request(); {
		case end == taken:
			return a.receive()
		case end == notTaken && a.reused:
			a.upload.stop()
			a.conn.take().CloseStale()
			return policy.CauseIdleClose
		case !a.reused: // a connection just dialled: the next dial is another attempt
			a.Drop()
			return policy.CauseDial
		}
		a.conn.take().CloseUnsent() // the upstream had closed it: nothing was sent, so take the next one
		a.client().Tick()           // the check may have waited
	}
}

// Resume continues an attempt that timed out. It has all the time that is left.
func (a *Attempt) Resume() policy.Cause {
	a.options.Timeout, a.options.HedgeAfter, a.took = 0, 0, 0
	return a.receive()
}

// Continue continues an attempt whose hedge ended first and has no good response.
func (a *Attempt) Continue() policy.Cause { return a.receive() }

// receive waits for the final response headers. It drops the connection unless it gets a status or
// an attempt timeout, the client has left, or the other attempt of the hedged request was first.
func (a *Attempt) receive() policy.Cause {
	wasOvertaken := a.overtaken
	cause := a.readFinalHeaders()
	switch {
	case a.overtaken && !wasOvertaken:
	case cause == policy.CauseStatus:
		a.upload.awaitLastWrite()
		a.body.begin(a)
	case cause != policy.CauseAttemptTimeout && a.client().ClientStaysOn(): // otherwise Resume or who waits for a late response needs it
		a.Drop()
	}
	return cause
}

// Began returns when the attempt began; zero means that it is not running.
func (a *Attempt) Began() clock.Instant { return a.began }

// Running reports whether the attempt has begun and not ended.
func (a *Attempt) Running() bool { return !a.began.IsZero() }

// Ended is what there is to say about an attempt that has its result.
type Ended struct {
	Began     clock.Instant
	At        clock.Instant       // when it had its result
	Addr      string              // the endpoint's address; "" if there was no connection
	Endpoint  *upstream.Endpoint  // where it was sent, if the upstream has several endpoints
	DialError *upstream.DialError // why there was no connection; nil if there was one
	Span      trace.AttemptSpan   // nil: it is not traced, or ended before
}

// ResultAt returns when the attempt had its result: now, unless the other attempt of its race went on then.
func (a *Attempt) ResultAt(now clock.Instant) clock.Instant {
	if a.took == 0 {
		return now
	}
	return a.began.Add(time.Duration(a.took-1) * time.Microsecond)
}

// resultCame records that the attempt has its result now, while the other attempt of its race goes on. Of
// more than 71 minutes it records as much: every connection has an attempt, which fits its size class.
func (a *Attempt) resultCame(now clock.Instant) {
	a.took = uint32(min(max(now.Sub(a.began).Microseconds(), 0)+1, math.MaxUint32))
}

// End records that the attempt has its result now, whose cause is cause.
func (a *Attempt) End(cause policy.Cause, now clock.Instant) Ended {
	e := Ended{Began: a.began, At: a.ResultAt(now), Addr: a.addr, Endpoint: a.endpoint, Span: a.span}
	switch cause {
	case policy.CauseDial, policy.CauseTLS, policy.CauseUntrusted:
		e.DialError = a.dialErr
	}
	a.began, a.span = 0, nil
	return e
}

// Span returns the span of the attempt, nil if it is not traced.
func (a *Attempt) Span() trace.AttemptSpan { return a.span }

// Number returns which of the request's attempts it is, from 1.
func (a *Attempt) Number() int { return int(a.number) }

// Addr returns the endpoint's address; "" before there was a connection.
func (a *Attempt) Addr() string { return a.addr }

// Endpoint returns where it was sent, if the upstream has several endpoints.
func (a *Attempt) Endpoint() *upstream.Endpoint { return a.endpoint }

// DialError returns why there was no connection; nil if there was one.
func (a *Attempt) DialError() *upstream.DialError { return a.dialErr }

// Reused reports whether its connection has carried another request before.
func (a *Attempt) Reused() bool { return a.reused }

// InFlight reports whether it has a connection.
func (a *Attempt) InFlight() bool { return a.conn.up != nil }

// got records that the upstream got n bytes of the beginning of the request.
func (a *Attempt) got(n int) { a.gotBytes = n > 0 }

// SentSome reports whether the upstream may have received a byte of the request.
func (a *Attempt) SentSome() bool { return a.Running() && a.InFlight() && a.gotBytes }

// Progress is how far an attempt has got, for whoever judges its upstream.
type Progress struct {
	SentSome  bool                // the upstream may have received a byte of the request
	Sent      bool                // the request was sent whole
	SentAt    clock.Instant       // when it was
	Begun     bool                // a part of the response came
	DialError *upstream.DialError // why there was no connection; nil if there was one
}

// AsIfSent returns p for an attempt whose connection may be gone, so that the upstream may have received a byte.
func (p Progress) AsIfSent() Progress {
	p.SentSome = true
	return p
}

// Progress returns how far the attempt has got.
func (a *Attempt) Progress() Progress {
	sent := a.IsSent() // before the time, which the pump sets
	return Progress{SentSome: a.SentSome(), Sent: sent, SentAt: a.SentAt(), Begun: a.Begun(), DialError: a.dialErr}
}

// IsSent reports whether the request was sent whole.
func (a *Attempt) IsSent() bool { return a.progress.Load() == sent }

// SentAt returns when the request was sent whole, or when the attempt began if it was not.
func (a *Attempt) SentAt() clock.Instant {
	if a.IsSent() {
		return a.sentAt
	}
	return a.began
}

// sentWholeAt records that the whole request was sent, or is being sent, at now.
func (a *Attempt) sentWholeAt(now clock.Instant) {
	a.sentAt = now
	a.progress.Store(sent)
}

// SendsBody reports whether the body of the request is being sent while the response is awaited.
func (a *Attempt) SendsBody() bool { return a.upload.hasBody() }

// UsesClient reports whether another goroutine reads from the client.
func (a *Attempt) UsesClient() bool { return a.upload.running || a.hedge != nil }

// Begun reports whether a part of the response came, informational responses included.
func (a *Attempt) Begun() bool { return a.conn.begun() }

// Response returns the response, whose headers are valid until the connection is given up or the body is
// read after HeadersSent.
func (a *Attempt) Response() *http1.Response { return &a.conn.resp }

// Body returns the body of the response.
func (a *Attempt) Body() *Body { return &a.body }

// ResponseMemory returns the capacity of the buffers that hold the response.
func (a *Attempt) ResponseMemory() int { return a.conn.size() + a.body.held.Cap() }

// HasUnread reports whether bytes of the response came that were not parsed yet.
func (a *Attempt) HasUnread() bool { return a.conn.hasUnread() }

// Unread returns what was read behind the headers, for a protocol that follows them.
func (a *Attempt) Unread() []byte { return a.conn.unread() }

// StopUpload ends the sending of a body that is no longer needed, and the watch on the client. The
// connection is then good for this response only.
func (a *Attempt) StopUpload() { a.upload.cutOff() }

// EndRequest is called when the response is whole, before its last bytes go to the client. A
// request body still in flight is stopped, and its connection is not reused: later bytes could
// pass for another request.
func (a *Attempt) EndRequest() {
	if !a.upload.running {
		return
	}
	a.upload.awaitLastWrite()
	if !a.IsSent() {
		a.upload.cutOff()
	}
}

// SetAside stops what the attempt does besides keeping its response, which may be relayed later.
func (a *Attempt) SetAside() {
	a.EndRequest()
	a.upload.stop()
}

// Take transfers the connection to the caller, without its read buffer. It returns nil if there is
// none.
func (a *Attempt) Take() *upstream.Conn {
	a.upload.stop()
	return a.conn.take()
}

// Release returns the connection to the pool after its response was read to the end. now is called for
// the time when that can be done.
func (a *Attempt) Release(now func() clock.Instant) {
	a.upload.stop()
	a.release(now(), a.respondedInOrder(), a.conn.resp.KeepAliveTimeout)
}

// respondedInOrder reports whether the connection can carry another request, as far as the response goes.
func (a *Attempt) respondedInOrder() bool {
	return !a.conn.resp.Close && !a.HasUnread() && !a.body.UntilClose()
}

// release returns the connection to the pool, where it may be idle for idle, or closes it if the response or
// the request did not end in order.
func (a *Attempt) release(now clock.Instant, respondedInOrder bool, idle time.Duration) {
	if respondedInOrder && a.upload.endedInOrder() {
		a.conn.release(now, idle)
		return
	}
	a.conn.close()
}

// Drop resets the connection, so that the upstream notices at once.
func (a *Attempt) Drop() {
	if a.conn.up == nil {
		return
	}
	a.upload.endWrites()
	a.conn.take().Abort()
}

// Abandon ends the attempt, with all that it holds.
func (a *Attempt) Abandon() {
	a.Drop()
	a.body.held.Put()
	a.upload.stop()
}

// Compact makes an attempt without a connection take as little memory as possible.
func (a *Attempt) Compact() {
	if a.conn.up == nil {
		a.conn.resp.Reset()
	}
}

// CheckDetached panics if the response, or what was written last, still points into b.
func (a *Attempt) CheckDetached(b []byte) {
	a.upload.checkDetached(b)
	a.conn.CheckDetached(b)
}

// Errors of reading a response, beside those of the connection.
var (
	// ErrClientGone is the error if the client left while the response was read.
	ErrClientGone = errors.New("the client closed the connection")
	// ErrVanished is the error if the upstream's system does not acknowledge the request.
	ErrVanished = errors.New("the host of the upstream does not acknowledge what was sent")
	// ErrCut is the error of a response that ended before the end that its framing announced.
	ErrCut = errors.New("the response was cut off")
	// ErrTrailersTooLarge is the error of a response that is whole but for its trailers.
	ErrTrailersTooLarge = errors.New("the trailers of the response are larger than the limit for headers")
)
