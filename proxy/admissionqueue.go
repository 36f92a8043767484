package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// admissionQueue admits attempts to one upstream. The policy.Guard decides. The queue keeps
// those who have to wait, and runs the timer and the probe that the Guard asks for.
type admissionQueue struct {
	guard      *policy.Guard
	hasBreaker bool // the guard has a breaker
	pool       *upstream.Group
	elapsed    func() time.Duration
	draining   *atomic.Bool // the server drains
	order      QueueOrder

	mu              sync.Mutex // guards all below, and the order of Guard.Enter and Guard.Next
	queue           *policy.Queue[*waiter]
	timer           *time.Timer
	closed          bool
	probes          sync.WaitGroup
	log             func(msg string, fields ...zap.Field) // logs that the upstream goes down and comes back
	lastCause       func() []zap.Field                    // of the last failed connection
	downSince       time.Time                             // when the breaker opened, as logged; zero: it is closed
	queueLogged     atomic.Bool                           // queued requests were logged since the breaker opened
	lateProbes      map[*upstream.Conn]struct{}           // probes still read from
	awaitingBreaker []*waiter                             // see awaitBreaker

	probeRequest []byte          // the request that probes; nil: no active probe
	probeStats   probeCounts     // results of the probes
	dialCtx      context.Context // ends with the queue; for dials of probes
	cancelDials  context.CancelFunc
}

// waiter is an exchange in the queue. The exchange owns it; while it is queued, the queue
// writes to it.
type waiter struct {
	c          *conn
	decision   atomic.Int32  // the decision of the queue
	expectedAt time.Duration // when it expects a permit, since the server's start; 0: at any time
	permit     policy.Permit
	request    policy.Request // what it waits to send
}

// requestComplete reports whether the request was received whole.
func (w *waiter) requestComplete() bool { return !w.request.Unfinished }

// Decisions of the queue.
const (
	decisionWait int32 = iota
	decisionAdmit
	decisionProbe
	decisionDropped // the queue was full and it was the oldest
	decisionDrained // the breaker opened in a drain
)

func newAdmissionQueue(s *Server, pool *upstream.Group, r *Route, log *zap.Logger) *admissionQueue {
	o, ask := r.Guard, r.Probe.request(r.Upstream.Host)
	o.ActiveProbe, o.ConnectProbe = ask != nil, true
	d := &admissionQueue{
		log: log.Warn, guard: policy.NewGuard(o), hasBreaker: !o.NoBreaker, pool: pool, elapsed: s.elapsed, draining: &s.draining, order: r.QueueOrder, queue: policy.NewQueue[*waiter](r.QueueMax),
		lateProbes: map[*upstream.Conn]struct{}{}, probeRequest: ask, lastCause: func() []zap.Field { return nil },
	}
	d.dialCtx, d.cancelDials = context.WithCancel(context.Background())
	d.timer = time.AfterFunc(time.Hour, d.onTimer)
	d.timer.Stop()
	return d
}

// acquire asks for a permit. decisionWait means that the waiter is queued and will be
// notified. If patience reports false, it is not queued.
func (d *admissionQueue) acquire(w *waiter, now time.Duration, patience func(policy.Verdict) bool) (decision int32, v policy.Verdict, t policy.Ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.permit, v = d.guard.Acquire(now, w.request)
	switch v {
	case policy.VerdictGo:
		return decisionAdmit, v, t
	case policy.VerdictProbe:
		d.setTimer()
		return decisionProbe, v, t
	}
	defer d.setTimer()
	if !patience(v) {
		d.guard.CancelWait(now, w.request)
		return decisionDropped, v, t
	}
	w.decision.Store(decisionWait)
	t, out, dropped := d.queue.Push(w)
	if dropped {
		d.guard.CancelWait(now, out.request)
		out.notify(decisionDropped)
	}
	return decisionWait, v, t
}

// notify gives a waiter the decision and wakes it.
func (w *waiter) notify(decision int32) {
	w.decision.Store(decision)
	w.c.wake(phaseBackoff)
}

// cancelWait removes a waiter from the queue that does not want to wait any longer. It
// returns the decision that the waiter got meanwhile, or decisionWait.
func (d *admissionQueue) cancelWait(w *waiter, t policy.Ticket) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue.Remove(t) {
		d.guard.CancelWait(d.elapsed(), w.request)
		d.setTimer()
		return decisionWait
	}
	return w.decision.Load()
}

// handleSignal does what a call of the Guard asked for.
func (d *admissionQueue) handleSignal(s policy.Signal) {
	if s != 0 {
		d.handleSignalSlow(s)
	}
}

func (d *admissionQueue) handleSignalSlow(s policy.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s&policy.SignalWake != 0 {
		d.admitQueued()
	}
	d.setTimer()
	d.reportState()
}

// reportState logs that the upstream went down or came back. Called with mu held.
func (d *admissionQueue) reportState() {
	g := d.guard.State()
	if g.Breaker != policy.BreakerClosed {
		d.notifyAwaitingBreaker()
	}
	if d.draining.Load() && !allowsRequests(g.Breaker) {
		d.drainQueue()
	}
	switch name := zap.String("upstream", d.pool.Target().String()); {
	case g.Breaker != policy.BreakerClosed && d.downSince.IsZero():
		d.downSince = time.Now()
		fields := []zap.Field{name, zap.Stringer("by", g.OpenedBy)}
		if g.OpenedBy == policy.OpenedByRefused || g.OpenedBy == policy.OpenedByDial {
			fields = append(fields, d.lastCause()...)
		}
		d.log("the upstream is taken for down", fields...)
	case g.Breaker == policy.BreakerClosed && !d.downSince.IsZero():
		d.log("the upstream is back", name, zap.Duration("after_seconds", time.Since(d.downSince)))
		d.downSince = time.Time{}
		d.queueLogged.Store(false)
	}
}

// logQueued logs the first queued request of an outage. Its client may see nothing for up
// to timeout.
func (d *admissionQueue) logQueued(timeout time.Duration) {
	if d.queueLogged.Load() || d.queueLogged.Swap(true) {
		return
	}
	msg := "the upstream is down; requests are queued"
	if d.guard.State().OpenedBy == policy.OpenedByRefused {
		msg = "the upstream refuses connections; requests are queued"
	}
	d.log(msg, zap.String("upstream", d.pool.Target().String()), zap.Duration("queue_timeout_seconds", timeout))
}

// admitsOnlyProbes reports whether only probes are admitted.
func (d *admissionQueue) admitsOnlyProbes() bool { return !allowsRequests(d.guard.State().Breaker) }

func allowsRequests(g policy.BreakerState) bool {
	return g == policy.BreakerClosed || g == policy.BreakerSlowStart
}

// drainQueue rejects all queued requests during a drain. Called with mu held.
func (d *admissionQueue) drainQueue() {
	now := d.elapsed()
	for d.queue.Len() > 0 {
		w, _ := d.queue.Oldest()
		d.guard.CancelWait(now, w.request)
		w.notify(decisionDrained)
	}
	d.setTimer()
}

// admitQueued admits queued requests for which the Guard has permits, in queue order. Called
// with mu held.
func (d *admissionQueue) admitQueued() {
	now := d.elapsed()
	next, take, takeThat := d.queue.Last, d.queue.Newest, d.queue.NewestThat
	if d.order == QueueOldest {
		next, take, takeThat = d.queue.First, d.queue.Oldest, d.queue.OldestThat
	}
	for d.queue.Len() > 0 {
		headers, _ := next()
		permit, v := d.guard.Next(now, headers.request)
		switch v {
		case policy.VerdictGo:
			d.admitOne(take, permit, decisionAdmit)
		case policy.VerdictProbe:
			d.admitOne(func() (*waiter, bool) { return takeThat((*waiter).requestComplete) }, permit, decisionProbe)
		default:
			return
		}
	}
}

// admitOne gives the permit to the waiter that take removes from the queue. Called with mu held.
func (d *admissionQueue) admitOne(take func() (*waiter, bool), permit policy.Permit, decision int32) {
	if w, ok := take(); ok {
		w.permit = permit
		w.notify(decision)
	}
}

// setTimer sets the timer to the next event of the Guard. Called with mu held, after every
// change of the queue.
func (d *admissionQueue) setTimer() {
	at := d.guard.NextEvent()
	if d.isOver() {
		d.endProbes()
		at = policy.Forever
	}
	if at == policy.Forever {
		d.timer.Stop()
		return
	}
	d.timer.Reset(max(at-d.elapsed(), 0))
}

// isOver reports whether the queue is closed and empty. After a reload, requests that were
// queued are still admitted. Called with mu held.
func (d *admissionQueue) isOver() bool { return d.closed && d.queue.Len() == 0 }

// onTimer handles an event of the timer.
func (d *admissionQueue) onTimer() {
	s := d.guard.Expire(d.elapsed())
	d.probe()
	d.handleSignal(s | policy.SignalEvent)
}

// dialEndKind returns what a failed dial says about the upstream.
func dialEndKind(err error) policy.EndKind {
	var dial *upstream.DialError
	if !errors.As(err, &dial) {
		return policy.DialFailed
	}
	switch dial.Kind {
	case upstream.KindRefused:
		return policy.Refused
	case upstream.KindCanceled, upstream.KindNoDescriptors:
		return policy.Unsent
	}
	return policy.DialFailed
}

// retryAfter returns when a rejected client may ask again, in whole seconds from 1 to 30:
// at the next probe.
func (d *admissionQueue) retryAfter() int {
	wait := d.guard.NextEvent() - d.elapsed()
	return int(min(max((wait+time.Second-1)/time.Second, 1), 30))
}

// close ends timer and probes as soon as the queue is empty. It waits for the probes only
// if the queue is empty now.
func (d *admissionQueue) close() {
	d.mu.Lock()
	d.closed = true
	d.setTimer()
	ended := d.isOver()
	d.mu.Unlock()
	if ended {
		d.probes.Wait()
	}
}
