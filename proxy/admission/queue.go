// Package admission admits attempts at an upstream, or makes them wait: for the circuit breaker,
// for a permit under the concurrency limit (Queue), for a slot of a rate limit (RateLimits), and for a
// token of the retry budget (BudgetQueue). An Admitter takes one request through them and fills a
// Ticket for each of its attempts. Package policy decides; this package has the queues, timers, dials
// and probes. It knows a request only as a Requester.
package admission

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/queue"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Queue admits attempts to one upstream. The breaker.Guard decides. The queue keeps those that must
// wait, and runs the timer and the probe that the Guard asks for. It is safe for concurrent use.
type Queue struct {
	Guard      *breaker.Guard
	hasBreaker bool // the guard has a breaker
	pool       *upstream.Group
	elapsed    func() time.Duration
	draining   *atomic.Bool // the server drains

	mu          sync.Mutex // guards all fields below, and the order of Guard.Acquire and Guard.Next
	queue       *queue.Queue[*Waiter]
	oldest      bool    // in the order in which requests began, and the first is admitted first
	picked      *Waiter // by Pick
	timer       *time.Timer
	closed      bool
	probes      sync.WaitGroup
	log         func(msg string, fields ...zap.Field) // logs that the upstream goes down or comes back
	lastCause   func() []zap.Field                    // of the last failed connection
	downSince   time.Time                             // when the log said that the breaker opened; zero: it is closed
	queueLogged atomic.Bool                           // the log mentioned queued requests since the breaker opened

	byRequest  Probe           // how it is probed by GET; without a path it is not
	probeStats probeCounts     // results of the probes
	probeCtx   context.Context // ends with the queue
	endProbes  context.CancelFunc
}

// Waker is a waiter in a queue.
type Waker interface {
	// WakeQueued ends the wait, so that the waiter reads its decision. It does not block.
	WakeQueued()
}

// Waiter is an exchange in the queue. The exchange owns it; while it is queued, the queue writes
// to it.
type Waiter struct {
	Owner      Waker
	Decision   atomic.Int32  // the decision of the queue
	free       freeRetry     // of its Admitter; here it takes no room
	queuedAt   time.Duration // when it was queued or, with Options.Oldest, when its request began, since the server's start
	until      time.Duration // how long it can wait for a budget token, since the server's start
	ExpectedAt time.Duration // when it is likely to get a permit, since the server's start; 0: at any time
	Permit     breaker.Permit
	Request    breaker.Request // what it waits to send
	Use        *Use            // of limits that count tokens; nil: none of them applies
}

// Decisions of the queue.
const (
	Wait int32 = iota
	Admit
	ProbeNow
	Dropped // the queue was full and it was the oldest
	Drained // the breaker opened during a drain
)

// Options configure an admission queue.
type Options struct {
	Guard    breaker.Options
	Pool     *upstream.Group
	Probe    Probe
	Max      int  // waiters; when exceeded, the oldest is dropped
	Oldest   bool // the waiter whose request began first is admitted first, and not the newest
	Clock    *clock.Clock
	Draining *atomic.Bool  // the server drains
	Failures *DialFailures // of the pool; what the queue logs goes to their log
}

// New returns a queue with no attempt in flight. Close ends its timer and probes.
func New(o Options) *Queue {
	o.Guard.ActiveProbe = o.Probe.Path != ""
	d := &Queue{
		log: o.Failures.log.Warn, Guard: breaker.New(o.Guard), hasBreaker: !o.Guard.NoBreaker, pool: o.Pool, elapsed: o.Clock.Elapsed, draining: o.Draining,
		queue: queue.New[*Waiter](o.Max), oldest: o.Oldest, byRequest: o.Probe, lastCause: o.Failures.lastCause,
	}
	d.probeCtx, d.endProbes = context.WithCancel(context.Background())
	d.timer = time.AfterFunc(time.Hour, d.onTimer)
	d.timer.Stop()
	return d
}

// Acquire requests a permit for a request that began at arrived. If it returns Wait, the waiter is
// queued and will be notified. If patience reports false, the waiter is not queued.
func (q *Queue) Acquire(w *Waiter, now, arrived time.Duration, patience func(breaker.Verdict) bool) (decision int32, v breaker.Verdict, t queue.Ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.Permit, v = q.Guard.Acquire(now, w.Request)
	switch v {
	case breaker.VerdictGo:
		return Admit, v, t
	case breaker.VerdictProbe:
		q.setTimer()
		return ProbeNow, v, t
	}
	defer q.setTimer()
	if !patience(v) {
		q.Guard.CancelWait(now, w.Request)
		return Dropped, v, t
	}
	w.Decision.Store(Wait)
	w.queuedAt = now
	if q.oldest {
		w.queuedAt = arrived
	}
	t, out, dropped := q.push(w)
	if dropped {
		q.Guard.CancelWait(now, out.Request)
		out.Notify(Dropped)
	}
	return Wait, v, t
}

// push adds a waiter to the queue. With oldest, one that was admitted before and failed gets its
// place again. It is called with mu held.
func (q *Queue) push(w *Waiter) (t queue.Ticket, out *Waiter, dropped bool) {
	if !q.oldest {
		return q.queue.Push(w)
	}
	return q.queue.Insert(w, func(o *Waiter) bool { return o.queuedAt <= w.queuedAt })
}

// AcquireNow takes a permit for an attempt that neither waits for one nor is a probe.
func (q *Queue) AcquireNow(now time.Duration) (breaker.Permit, bool) {
	if permit, ok := q.Guard.AcquireFast(now); ok {
		return permit, true
	}
	var w Waiter
	switch decision, _, _ := q.Acquire(&w, now, now, func(breaker.Verdict) bool { return false }); decision {
	case Admit:
		return w.Permit, true
	case ProbeNow:
		q.HandleSignal(q.Guard.Release(w.Permit, now, breaker.AttemptEnd{Kind: breaker.Unsent}))
	}
	return breaker.Permit{}, false
}

// Notify sets the decision of a waiter and wakes it.
func (w *Waiter) Notify(decision int32) {
	w.Decision.Store(decision)
	w.Owner.WakeQueued()
}

// CancelWait removes a waiter from the queue. It returns the decision that the waiter got before,
// or Wait if it got none.
func (q *Queue) CancelWait(w *Waiter, t queue.Ticket) int32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue.Remove(t) {
		q.Guard.CancelWait(q.elapsed(), w.Request)
		q.setTimer()
		return Wait
	}
	return w.Decision.Load()
}

// TakeLast takes a permit for a waiter that CancelWait removed because its time was over, if a place
// became free at that moment or the only evidence against the upstream is its silence.
func (q *Queue) TakeLast(w *Waiter) bool {
	permit, ok := q.Guard.TakeLast(q.elapsed(), w.Request)
	if ok {
		w.Permit = permit
	}
	return ok
}

// HandleSignal does what a call of the Guard asked for.
func (q *Queue) HandleSignal(s breaker.Signal) {
	if s&^breaker.SignalDown != 0 {
		q.handleSignalSlow(s)
	}
}

func (q *Queue) handleSignalSlow(s breaker.Signal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s&breaker.SignalWake != 0 {
		q.admitQueued()
	}
	q.setTimer()
	q.reportState()
}

// reportState logs that the circuit breaker opened or closed. It is called with mu held.
func (q *Queue) reportState() {
	g := q.Guard.State()
	if q.draining.Load() && !allowsRequests(g.Breaker) {
		q.drainQueue()
	}
	switch name := zap.String("upstream", q.pool.Target().String()); {
	case g.Breaker != breaker.Closed && q.downSince.IsZero():
		q.downSince = time.Now()
		fields := []zap.Field{name, zap.Stringer("by", g.OpenedBy)}
		if g.OpenedBy == breaker.OpenedByRefused || g.OpenedBy == breaker.OpenedByDial {
			fields = append(fields, q.lastCause()...)
		}
		q.log("circuit breaker opened", fields...)
	case g.Breaker == breaker.Closed && !q.downSince.IsZero():
		q.log("circuit breaker closed", name, zap.Duration("after_seconds", time.Since(q.downSince)))
		q.downSince = time.Time{}
		q.queueLogged.Store(false)
	}
}

// LogQueued logs the first queued request of an outage. Its client may see nothing for up to
// timeout.
func (q *Queue) LogQueued(timeout time.Duration) {
	if q.queueLogged.Load() || q.queueLogged.Swap(true) {
		return
	}
	msg := "the circuit breaker is open; requests are queued"
	if q.Guard.State().OpenedBy == breaker.OpenedByRefused {
		msg = "the upstream refuses connections; requests are queued"
	}
	q.log(msg, zap.String("upstream", q.pool.Target().String()), zap.Duration("queue_timeout_seconds", timeout))
}

// AdmitsOnlyProbes reports whether only probes are admitted.
func (q *Queue) AdmitsOnlyProbes() bool { return !allowsRequests(q.Guard.State().Breaker) }

func allowsRequests(g breaker.State) bool {
	return g == breaker.Closed || g == breaker.SlowStart
}

// drainQueue rejects all queued requests during a drain. It is called with mu held.
func (q *Queue) drainQueue() {
	now := q.elapsed()
	for q.queue.Len() > 0 {
		w, _ := q.queue.Oldest()
		q.Guard.CancelWait(now, w.Request)
		w.Notify(Drained)
	}
	q.setTimer()
}

// admitQueued admits queued requests for which the Guard has permits. It is called with mu held.
func (q *Queue) admitQueued() {
	now := q.elapsed()
	for q.queue.Len() > 0 {
		permit, v := q.Guard.Next(now, q)
		decision := Admit
		switch v {
		case breaker.VerdictGo:
		case breaker.VerdictProbe:
			decision = ProbeNow
		default:
			return
		}
		q.picked.Permit = permit
		q.picked.Notify(decision)
	}
}

// Pick implements breaker.Line for admitQueued: the newest first, since it has the most time left,
// or the oldest if that is set.
func (q *Queue) Pick(fits func(breaker.Request) bool) (breaker.Request, bool) {
	from := q.queue.NewestThat
	if q.oldest {
		from = q.queue.OldestThat
	}
	w, ok := from(func(w *Waiter) bool { return fits(w.Request) })
	if !ok {
		return breaker.Request{}, false
	}
	q.picked = w
	return w.Request, true
}

// setTimer sets the timer to the next event of the Guard. It is called with mu held, after every
// change of the queue.
func (q *Queue) setTimer() {
	at := q.Guard.NextEvent()
	if q.isOver() {
		q.endProbes()
		at = backoff.Forever
	}
	if at == backoff.Forever {
		q.timer.Stop()
		return
	}
	q.timer.Reset(max(at-q.elapsed(), 0))
}

// isOver reports whether the queue is closed and empty. After a reload, requests that were queued
// are still admitted. It is called with mu held.
func (q *Queue) isOver() bool { return q.closed && q.queue.Len() == 0 }

// onTimer handles an event of the timer.
func (q *Queue) onTimer() {
	s := q.Guard.Expire(q.elapsed())
	q.probe()
	q.HandleSignal(s | breaker.SignalEvent)
}

// DialEndKind returns what a failed dial shows about the upstream.
func DialEndKind(err error) breaker.EndKind {
	var dial *upstream.DialError
	if !errors.As(err, &dial) {
		return breaker.DialFailed
	}
	if dial.Untrusted {
		return breaker.Unsent // a mistake in the settings, no outage: it must not make requests queue
	}
	switch dial.Kind {
	case upstream.KindRefused:
		return breaker.Refused
	case upstream.KindCanceled, upstream.KindNoDescriptors, upstream.KindNoStream:
		return breaker.Unsent
	}
	return breaker.DialFailed
}

// FailedEnd returns what an attempt shows that was sent and got no valid response because of cause. An
// upstream that sends anything is not silent: what is no response, or did not become one in time, counts
// as the 502 or 504 of a gateway. begun is whether a part of the response came.
func FailedEnd(cause policy.Cause, begun bool) breaker.AttemptEnd {
	switch {
	case cause == policy.CauseMalformed, cause == policy.CauseHeadersTooLarge:
		return breaker.AttemptEnd{Kind: breaker.Responded, Status: 502}
	case cause == policy.CauseAttemptTimeout && begun:
		return breaker.AttemptEnd{Kind: breaker.Responded, Status: 504}
	case cause == policy.CauseAttemptTimeout:
		return breaker.AttemptEnd{Kind: breaker.TimedOut}
	}
	return breaker.AttemptEnd{Kind: breaker.Reset}
}

// RetryAfter returns when a rejected client may retry, in whole seconds from 1 to 30: at the next
// probe.
func (q *Queue) RetryAfter() int {
	wait := q.Guard.NextEvent() - q.elapsed()
	return int(min(max((wait+time.Second-1)/time.Second, 1), 30))
}

// QueueStats is a snapshot of a Queue.
type QueueStats struct {
	Guard       breaker.GuardState
	LongestWait time.Duration                   // longest wait so far of a queued request; 0: none is queued
	HasProbe    bool                            // the upstream is probed by GET
	Probed      [breaker.NumProbeResults]uint64 // results of these probes
}

// Stats returns a snapshot of the queue.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Guard.FreeAbandoned(q.elapsed())
	return QueueStats{Guard: q.Guard.State(), LongestWait: longestWait(q.queue, q.elapsed()), HasProbe: q.hasProbe(), Probed: q.probeStats.read()}
}

func longestWait(q *queue.Queue[*Waiter], now time.Duration) time.Duration {
	if w, ok := q.First(); ok {
		return max(now-w.queuedAt, 0)
	}
	return 0
}

// Close ends timer and probes as soon as the queue is empty. It waits for the probes only if the
// queue is empty now.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.setTimer()
	ended := q.isOver()
	q.mu.Unlock()
	if ended {
		q.probes.Wait()
	}
}
