package exchange

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// hedgeAttempt is a second attempt of a request and the goroutine that makes it. The exchange starts the
// goroutine and waits for its end (done) before it uses att or result. stop makes the goroutine end
// soon.
type hedgeAttempt struct {
	att     attempt.Attempt
	beside  *upstream.Conn // of the first attempt, whose reader is woken at the end
	pool    *upstream.Group
	request [][]byte
	method  []byte
	limits  http1.Limits
	budget  *budget.Budget // a token of which is taken; nil: none
	until   clock.Instant  // zero: never
	ctx     context.Context
	cancel  context.CancelFunc
	onFault func(any)     // takes a panic of the goroutine
	isOver  atomic.Bool   // it ended, and done will be closed without a wait
	done    chan struct{} // the goroutine has ended

	mu      sync.Mutex // guards stopped and the setting of att.up
	stopped bool       // ... by stop

	cause   policy.Cause   // of the goroutine, and of the exchange after done
	wrote   bool           // likewise: the upstream has a byte of it
	result  policy.Attempt // what cause and the response mean; the exchange's
	buffers buffer.Cache
}

// stop makes the goroutine end at once, whatever it does. Any goroutine may call it, more than
// once.
func (h *hedgeAttempt) stop() {
	h.cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	if h.att.Up != nil {
		_ = h.att.Up.SetDeadline(downstream.Past)
	}
}

// run is the body of the goroutine.
func (h *hedgeAttempt) run() {
	defer close(h.done)
	defer h.cancel()
	defer func() {
		if fault := recover(); fault != nil {
			h.onFault(fault)
			h.cause = policy.CauseReset
			h.abort()
		}
		h.isOver.Store(true)
		_ = h.beside.SetReadDeadline(downstream.Past)
	}()
	h.cause = h.makeAttempt()
}

// makeAttempt sends the request and reads the response headers. The connection stays open after a
// status and after a timeout.
func (h *hedgeAttempt) makeAttempt() policy.Cause {
	if h.att.Fault.Stalled && !h.stall() {
		return policy.CauseAttemptTimeout
	}
	cause := h.send(false)
	if cause == policy.CauseIdleClose && !h.isStopped() {
		cause = h.send(true) // what was pooled was stale
	}
	if cause != policy.CauseStatus {
		return cause
	}
	h.att.SentWhole()
	cause = h.att.ReadFinalHeaders(attempt.Plain{}, h.limits, h.method)
	if cause != policy.CauseStatus && cause != policy.CauseAttemptTimeout {
		h.abort()
	}
	return cause
}

// send writes the request to a connection. CauseStatus means that it was sent whole.
func (h *hedgeAttempt) send(fresh bool) policy.Cause {
	up, err := h.connect(fresh)
	if err != nil {
		return h.att.DialFailed(err)
	}
	if !h.use(up) {
		if h.att.Fault.Breaks() {
			up.Abort()
		} else {
			up.Release(0) // for the next request
		}
		return policy.CauseDial
	}
	n, err := up.Writev(slices.Clone(h.request)) // which cuts what it is given
	h.att.GotBytes = n > 0
	h.wrote = h.wrote || n > 0
	switch {
	case err == nil:
		return policy.CauseStatus
	case n > 0:
		h.abort()
		return policy.CauseReset
	case up.Reused && !rawsocket.IsTimeout(err):
		h.take().CloseStale()
		return policy.CauseIdleClose
	}
	h.abort()
	return policy.CauseDial
}

// stall waits out an injected delay. To all others the upstream has the request and is silent. It
// reports false if there is no more time, or after stop.
func (h *hedgeAttempt) stall() bool {
	h.wrote = true
	delay := time.NewTimer(h.att.Fault.Delay)
	defer delay.Stop()
	select {
	case <-delay.C:
		h.att.Fault.Stalled = false
		return true
	case <-h.ctx.Done():
		return false
	}
}

// connect gets a connection, to another endpoint than that of the first attempt if there is one, or
// an injected fault in its place.
func (h *hedgeAttempt) connect(fresh bool) (*upstream.Conn, error) {
	if h.att.Fault.Breaks() {
		return attempt.StandIn(h.pool, h.att.Fault.Fault), nil
	}
	return h.pool.Get(h.ctx, upstream.GetOptions{Fresh: fresh, Avoid: h.beside.Addr})
}

// use gives the attempt its connection, which stop then knows. It reports false if stop was called
// already.
func (h *hedgeAttempt) use(up *upstream.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	_ = up.SetDeadline(h.att.Host.Clock.At(h.until))
	h.att.Use(up)
	return true
}

func (h *hedgeAttempt) isStopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped
}

// take returns the connection, or nil. The caller then owns it.
func (h *hedgeAttempt) take() *upstream.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.att.Take()
}

// await waits for the end of the goroutine and evaluates what it got for the request r.
func (h *hedgeAttempt) await(r *request.Request) {
	<-h.done
	h.result = policy.Attempt{Cause: h.cause}
	if h.cause != policy.CauseStatus {
		return
	}
	if r.IsIdleTimeout408(&h.att.Resp, h.att.Reused) {
		h.abort()
		h.cause, h.result.Cause = policy.CauseIdleClose, policy.CauseIdleClose
		return
	}
	r.StatusOf(&h.result, &h.att.Resp)
}

// releasePermit returns the permit of the hedge of the request r. kind says how it ended if it has no
// result: Unsent, or why it is no longer awaited.
func (h *hedgeAttempt) releasePermit(r *request.Request, kind breaker.EndKind) {
	permit := h.att.TakePermit()
	if !permit.Taken() {
		return
	}
	d, t := r.Route.UpstreamState.Admission, r.Process.Clock.Elapsed()
	e := breaker.AttemptEnd{Kind: kind, Key: r.UrlKey(), Closed: true}
	switch {
	case kind == breaker.Unsent:
		d.HandleSignal(d.Guard.Release(permit, t, e))
		return
	case kind == breaker.Abandoned || h.result.Cause == policy.CauseAttemptTimeout:
		_, signal := d.Guard.Abandon(permit, t, e)
		d.HandleSignal(signal)
		return
	}
	d.HandleSignal(d.Guard.Release(permit, t, r.AttemptEnd(&h.att, &h.result)))
}

// abort ends the connection, if there is one.
func (h *hedgeAttempt) abort() {
	if up := h.take(); up != nil {
		up.Abort()
	}
}
