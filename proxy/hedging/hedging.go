// Package hedging makes an attempt in its own goroutine, beside the first attempt of a request.
// Package exchange decides which of the two is relayed, and handles everything about the client.
// See docs/decisions/0006-hedging.md.
package hedging

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
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Attempt is a second attempt of a request and the goroutine that makes it. The exchange starts
// the goroutine and waits for its end before it uses Att, Cause, Wrote or Result. Stop ends the
// goroutine soon.
type Attempt struct {
	Att     attempt.Attempt
	Budget  *budget.Budget // a token of it was taken; nil: none
	dialing time.Duration  // limits a dial
	beside  *upstream.Conn // of the first attempt; its reader is woken at the end
	pool    *upstream.Group
	request [][]byte
	addHost bool // request has no Host yet, because it is that of the endpoint
	method  []byte
	limits  http1.Limits
	until   clock.Instant // zero: never
	ctx     context.Context
	cancel  context.CancelFunc
	onFault func(any)     // called with a panic of the goroutine
	isOver  atomic.Bool   // it ended, and Done will be closed without a wait
	Done    chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // guards stopped and the setting of Att.Up
	stopped bool       // by Stop

	Cause   policy.Cause   // of the goroutine, and of the exchange after Done
	Wrote   bool           // likewise: the upstream got a byte of it
	Result  policy.Attempt // derived from Cause and the response; set by the exchange
	buffers buffer.Cache
}

// New returns a hedge of the request r beside the attempt on first. It counts as an attempt after
// it was sent.
func New(r *request.Request, first *upstream.Conn, permit breaker.Permit, b *budget.Budget) *Attempt {
	h := &Attempt{
		beside: first, pool: r.Route.UpstreamState.Pool, dialing: r.Route.DialTimeout, method: r.HTTP.Method, limits: r.Settings.Limits,
		addHost: r.Out.LacksHost, Budget: b, onFault: r.Process.Fault, Done: make(chan struct{}),
	}
	a := &h.Att
	a.Host, a.Buffers = &r.Process.Attempts, &h.buffers
	a.Number, a.Permit, a.Began = int32(r.Attempts+1), permit, r.Time.Clock
	h.until = r.Time.Deadline
	if t := r.Time.AttemptTimeout(); t > 0 {
		h.until = request.Earliest(r.Time.Deadline, r.Time.Clock.Add(t))
	}
	h.ctx, h.cancel = r.Process.Clock.Context(h.until)
	return h
}

// Start sends the request, which consists of parts, in a new goroutine. The first part is its whole
// header section.
func (h *Attempt) Start(parts [][]byte) {
	h.request = parts
	go h.run()
}

// End makes the goroutine end and waits for that. It may be called before Start, in its place.
func (h *Attempt) End() {
	h.Stop()
	if h.request != nil {
		<-h.Done
	}
}

// IsOver reports whether the goroutine has ended, or is about to without a wait. It is safe for
// concurrent use.
func (h *Attempt) IsOver() bool { return h.isOver.Load() }

// Stop ends the goroutine at once. It is safe for concurrent use and may be called more than once.
func (h *Attempt) Stop() {
	h.cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	if h.Att.Up != nil {
		_ = h.Att.Up.SetDeadline(downstream.Past)
	}
}

// run is the body of the goroutine.
func (h *Attempt) run() {
	defer close(h.Done)
	defer h.cancel()
	defer func() {
		if fault := recover(); fault != nil {
			h.onFault(fault)
			h.Cause = policy.CauseReset
			h.Abort()
		}
		h.isOver.Store(true)
		_ = h.beside.SetReadDeadline(downstream.Past)
	}()
	h.Cause = h.makeAttempt()
}

// makeAttempt sends the request and reads the response headers. The connection stays open after a
// status and after a timeout.
func (h *Attempt) makeAttempt() policy.Cause {
	cause := h.send(false)
	if cause == policy.CauseIdleClose && !h.IsStopped() {
		cause = h.send(true) // the pooled connection was stale
	}
	if cause != policy.CauseStatus {
		return cause
	}
	h.Att.SentWhole()
	cause = h.Att.ReadFinalHeaders(attempt.Plain{}, h.limits, h.method)
	if cause != policy.CauseStatus && cause != policy.CauseAttemptTimeout {
		h.Abort()
	}
	return cause
}

// send writes the request to a connection. If it returns CauseStatus, the request was sent whole.
func (h *Attempt) send(fresh bool) policy.Cause {
	// To another endpoint than that of the first attempt, if there is one.
	up, err := h.pool.Get(h.ctx, upstream.GetOptions{Fresh: fresh, Avoid: h.beside.Addr, DialTimeout: h.dialing})
	if err != nil {
		return h.Att.DialFailed(err)
	}
	if !h.use(up) {
		up.Release(0) // for the next request
		return policy.CauseDial
	}
	parts := slices.Clone(h.request) // Writev cuts its argument
	if h.addHost {
		parts[0] = forward.AddHost(slices.Clone(parts[0]), up.Host())
	}
	n, err := up.Writev(parts)
	h.Att.GotBytes = n > 0
	h.Wrote = h.Wrote || n > 0
	switch {
	case err == nil:
		return policy.CauseStatus
	case n > 0:
		h.Abort()
		return policy.CauseReset
	case up.Reused && !rawsocket.IsTimeout(err):
		h.take().CloseStale()
		return policy.CauseIdleClose
	}
	h.Abort()
	return policy.CauseDial
}

// use makes up the attempt's connection, so that Stop can end it. It reports false if Stop was
// already called.
func (h *Attempt) use(up *upstream.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	_ = up.SetDeadline(h.Att.Host.Clock.At(h.until))
	h.Att.Use(up)
	return true
}

// IsStopped reports whether Stop was called.
func (h *Attempt) IsStopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped
}

// take returns the connection, or nil. The caller then owns it.
func (h *Attempt) take() *upstream.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Att.Take()
}

// Await waits for the end of the goroutine and evaluates its result for the request r.
func (h *Attempt) Await(r *request.Request) {
	<-h.Done
	h.Result = policy.Attempt{Cause: h.Cause}
	if h.Cause != policy.CauseStatus {
		return
	}
	if r.IsIdleTimeout408(h.Att.Response(), h.Att.Reused) {
		h.Abort()
		h.Cause, h.Result.Cause = policy.CauseIdleClose, policy.CauseIdleClose
		return
	}
	r.StatusOf(&h.Result, h.Att.Response())
}

// ReleasePermit returns the permit of the hedge of the request r. kind is how it ended if it has
// no result: Unsent, or why it is no longer awaited.
func (h *Attempt) ReleasePermit(r *request.Request, kind breaker.EndKind) {
	permit := h.Att.TakePermit()
	if !permit.Taken() {
		return
	}
	d, t := r.Route.UpstreamState.Admission, r.Process.Clock.Elapsed()
	e := breaker.AttemptEnd{Kind: kind, Key: r.UrlKey(), Closed: true}
	switch {
	case kind == breaker.Unsent:
		d.HandleSignal(d.Guard.Release(permit, t, e))
		return
	case kind == breaker.Abandoned && h.Att.Begun():
		d.HandleSignal(d.Guard.Release(permit, t, r.EndOfBegun(kind)))
		return
	case kind == breaker.Abandoned || h.Result.Cause == policy.CauseAttemptTimeout && !h.Att.Begun():
		_, signal := d.Guard.Abandon(permit, t, e)
		d.HandleSignal(signal)
		return
	}
	d.HandleSignal(d.Guard.Release(permit, t, r.AttemptEnd(&h.Att, &h.Result)))
}

// Abort ends the connection, if there is one.
func (h *Attempt) Abort() {
	if up := h.take(); up != nil {
		up.Abort()
	}
}
