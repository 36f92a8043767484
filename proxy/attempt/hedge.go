package attempt

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// A hedge is a second attempt beside a first one that waits for its response. A goroutine of its own
// makes it, with the whole request in memory. The owner of both chooses: a hedge that wins takes the
// place of the first attempt by Adopt. See docs/decisions/0006-hedging.md.

// Hedge is what a hedge is made of.
type Hedge struct {
	Pool        *upstream.Group
	DialTimeout time.Duration
	Until       clock.Instant // when it ends; zero: never
	// Head returns the headers in that form for an endpoint with that host. The goroutine of the hedge calls it.
	Head func(form wire.Form, host string) wire.Head
}

// background is the goroutine that makes a hedge.
type background struct {
	a      *Attempt
	hedge  Hedge
	beside *upstream.Conn // of the first attempt; its reader is woken at the end
	avoid  string         // where the first attempt was sent
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	over   atomic.Bool   // it ended, and done will be closed without a wait

	mu      sync.Mutex // guards stopped and the setting of a.conn.up
	stopped bool       // by StopHedge

	cause policy.Cause // of the goroutine; the owner's after it has ended
	wrote bool         // likewise: the upstream may have processed the request

	body     [][]byte // all of it
	chunks   [][]byte // the same in the framing of HTTP/1.1
	trailers []http1.Header
}

// untilHedge returns until, or the time when the hedge is due if that is sooner.
func (a *Attempt) untilHedge(until clock.Instant) clock.Instant {
	if a.options.HedgeAfter == 0 {
		return until
	}
	return clock.Earliest(until, a.sentAt.Add(a.options.HedgeAfter))
}

// hedgeDue reports whether the hedge of an attempt that was sent whole is due.
func (a *Attempt) hedgeDue() bool {
	return a.options.HedgeAfter > 0 && !a.now().Before(a.sentAt.Add(a.options.HedgeAfter))
}

// hedgeOvertook reports whether the hedge has ended, once.
func (a *Attempt) hedgeOvertook() bool {
	if a.hedge == nil || a.overtaken || !a.hedge.background.over.Load() {
		return false
	}
	a.overtaken = true
	return true
}

// StartHedge makes h, which has begun, the hedge beside a, and starts its goroutine. All of the body of the
// request is kept.
func (a *Attempt) StartHedge(h *Attempt, made Hedge) {
	bg := &background{body: a.source().Kept(), chunks: framed(a.source()), trailers: a.source().Trailers(), a: h, hedge: made, beside: a.conn.up, avoid: a.conn.up.Addr, done: make(chan struct{})}
	h.background, h.conn.buffers = bg, nil // those of the first attempt are another goroutine's
	bg.ctx, bg.cancel = a.host().Clock.Context(made.Until)
	a.hedge = h
	go bg.run()
}

// Overtaken reports whether the hedge ended before the attempt did.
func (a *Attempt) Overtaken() bool { return a.overtaken }

// AwaitHedge waits for the end of the hedge while the client is watched. The attempt has its result now.
func (a *Attempt) AwaitHedge() {
	a.resultCame(a.client().LastTick())
	if bg := a.hedge.background; !bg.over.Load() {
		a.upload.stop()
		a.upload.startWatch(bg.stop)
		<-bg.done
		a.upload.stop()
	}
}

// EndHedge ends the race with the hedge. Its goroutine has ended.
func (a *Attempt) EndHedge() {
	a.hedge, a.overtaken = nil, false
	a.conn.forgetRead() // the hedge moved the deadline
}

// HedgeEnded reports whether the hedge has ended on its own.
func (a *Attempt) HedgeEnded() bool {
	bg := a.background
	bg.mu.Lock()
	defer bg.mu.Unlock()
	return bg.over.Load() && !bg.stopped
}

// StopHedge ends the goroutine of a hedge at once, if it was started, and waits for its end. It may be
// called more than once.
func (a *Attempt) StopHedge() {
	if a.background != nil {
		a.background.stop()
		<-a.background.done
	}
}

// HedgeResult waits for the goroutine of a hedge. It returns how reading the headers ended, and whether
// the upstream got a byte of the request.
func (a *Attempt) HedgeResult() (cause policy.Cause, wrote bool) {
	<-a.background.done
	return a.background.cause, a.background.wrote
}

// Adopt makes a hedge whose goroutine has ended an attempt like any other. If it has response headers,
// its body can be read. If goesOn is set, its result is yet to come.
func (a *Attempt) Adopt(o Options, goesOn bool) {
	if goesOn {
		a.took = 0
	}
	cause := a.background.cause
	a.background, a.options, a.conn.buffers = nil, o, a.conn.env.Buffers
	if up := a.conn.up; up != nil {
		up.ForgetDeadlines() // the hedge has set deadlines of its own
	}
	if cause == policy.CauseStatus {
		a.body.begin(a)
	}
}

// stop ends the goroutine at once. It is safe for concurrent use and may be called more than once.
func (b *background) stop() {
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.a.conn.up != nil {
		_ = b.a.conn.up.SetDeadline(past)
	}
}

// run is the body of the goroutine.
func (b *background) run() {
	defer close(b.done)
	defer b.cancel()
	defer func() {
		fault := recover()
		if fault != nil {
			b.cause = policy.CauseReset
			b.abort()
		}
		b.a.resultCame(b.a.now())
		b.over.Store(true)
		_ = b.beside.SetReadDeadline(past)
		if fault != nil {
			b.a.host().OnFault(fault) // it is over when the fault is counted
		}
	}()
	b.cause = b.make()
}

// make makes the attempt, on a fresh connection if the pooled one was stale.
func (b *background) make() policy.Cause {
	cause := b.once(false)
	if cause == policy.CauseIdleClose && !b.isStopped() {
		cause = b.once(true)
	}
	return cause
}

// once sends the request and reads the response headers. The connection stays open after a status and after a
// timeout.
func (b *background) once(fresh bool) policy.Cause {
	if cause := b.send(fresh); cause != policy.CauseStatus {
		return cause
	}
	b.a.sentWholeAt(b.a.now())
	cause := b.a.readFinalHeaders()
	switch cause {
	case policy.CauseStatus, policy.CauseAttemptTimeout:
		return cause
	case policy.CauseIdleClose, policy.CauseRefusedStream: // of HTTP/2: certainly not processed
		b.wrote = false
	}
	b.abort()
	return cause
}

// send writes the request to a connection, to another endpoint than that of the first attempt if there
// is one. If it returns CauseStatus, the request was sent whole.
func (b *background) send(fresh bool) policy.Cause {
	up, err := b.hedge.Pool.Get(b.ctx, upstream.GetOptions{Fresh: fresh, Avoid: b.avoid, DialTimeout: b.hedge.DialTimeout, BoundUnsent: b.a.host().UnderPressure()})
	if err != nil {
		return b.a.DialFailed(err)
	}
	if !b.use(up) {
		up.Release(0) // for the next request
		return policy.CauseDial
	}
	head := b.hedge.Head(up.Form(), up.Host())
	body := b.body
	if up.Form() == wire.Lines {
		body = b.chunks
	}
	n, err := up.Begin(&head, append([][]byte{head.Fields}, body...), true, b.trailers)
	b.a.got(n)
	b.wrote = b.wrote || n > 0
	switch {
	case err == nil, n > 0 && up.Stream(): // if a stream takes no more, its response tells why
		return policy.CauseStatus
	case n > 0:
		b.abort()
		return policy.CauseReset
	case up.Reused && !rawsocket.IsTimeout(err):
		b.take().CloseStale()
		return policy.CauseIdleClose
	}
	b.abort()
	return policy.CauseDial
}

// use makes up the attempt's connection, so that stop can end it. It reports false if stop was
// already called.
func (b *background) use(up *upstream.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	_ = up.SetDeadline(b.a.host().Clock.At(b.hedge.Until))
	b.a.use(up)
	return true
}

func (b *background) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}

// take returns the connection, or nil. The caller then owns it.
func (b *background) take() *upstream.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.a.conn.take()
}

// abort resets the connection, if there is one.
func (b *background) abort() {
	if up := b.take(); up != nil {
		up.Abort()
	}
}
