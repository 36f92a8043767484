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

// admissionQueue is where attempts enter one upstream. The policy.Guard decides; here
// stand those who have to wait, and here run the timer and the probe that the
// Guard asks for.
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
	log             func(msg string, fields ...zap.Field) // told when the upstream goes down and comes back
	lastCause       func() []zap.Field                    // of the last failed connection
	downSince       time.Time                             // when the breaker opened, as far as was told; zero: open
	queueLogged     atomic.Bool                           // that requests are queued, since the breaker opened
	lateProbes      map[*upstream.Conn]struct{}           // probes still read from
	awaitingBreaker []*waiter                             // await the opening of the breaker; see awaitBreaker

	probeRequest []byte          // the request that probes; nil: none of our own does
	probeStats   probeCounts     // what came of it
	dialCtx      context.Context // ends with the queue; for dials of probes
	cancelDials  context.CancelFunc
}

// waiter is an exchange in the queue. Its exchange owns it; the queue writes to it
// while it is in the queue.
type waiter struct {
	c          *conn
	decision   atomic.Int32  // what the queue said
	expectedAt time.Duration // when it expects to be let in, since the server's start; 0: at any time
	permit     policy.Permit
	request    policy.Request // what it waits to send
}

// requestComplete reports whether the waiter's request is here whole.
func (w *waiter) requestComplete() bool { return !w.request.Unfinished }

// What the queue says to a waiter.
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

// acquire asks for a place. With decisionWait the waiter waits in the queue and will be
// told; patient false: it does not want to, and does not stand there.
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

// notify gives a waiter its word and wakes it.
func (w *waiter) notify(decision int32) {
	w.decision.Store(decision)
	w.c.wake(phaseBackoff)
}

// cancelWait takes a waiter out of the line that does not want to wait any longer.
// The word says what it had been told meanwhile, if anything.
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

// handleSignal does what a Guard's call asked for.
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

// reportState says that the upstream went down or came back. Called with mu held.
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

// logQueued logs the first request of an outage that is queued, which may be for
// up to timeout: its client sees nothing until then.
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

// admitsOnlyProbes says whether nobody is let in but a probe.
func (d *admissionQueue) admitsOnlyProbes() bool { return !allowsRequests(d.guard.State().Breaker) }

func allowsRequests(g policy.BreakerState) bool {
	return g == policy.BreakerClosed || g == policy.BreakerSlowStart
}

// drainQueue turns away all who wait in the queue, in a drain. Called with mu held.
func (d *admissionQueue) drainQueue() {
	now := d.elapsed()
	for d.queue.Len() > 0 {
		w, _ := d.queue.Oldest()
		d.guard.CancelWait(now, w.request)
		w.notify(decisionDrained)
	}
	d.setTimer()
}

// admitQueued lets in whom the Guard has places for, in the order of the queue. Called with mu held.
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

// admitOne gives the place to whom take takes out of the line. Called with mu held.
func (d *admissionQueue) admitOne(take func() (*waiter, bool), permit policy.Permit, decision int32) {
	if w, ok := take(); ok {
		w.permit = permit
		w.notify(decision)
	}
}

// setTimer sets the timer to the Guard's next event. Called with mu held, after every
// change of the line.
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

// isOver says whether the queue is closed and was left by the last who stood in
// line: after a reload, requests queued here are still let in. Called with mu held.
func (d *admissionQueue) isOver() bool { return d.closed && d.queue.Len() == 0 }

// onTimer is the timer's.
func (d *admissionQueue) onTimer() {
	s := d.guard.Expire(d.elapsed())
	d.probe()
	d.handleSignal(s | policy.SignalEvent)
}

// dialEndKind is what a failed dial tells about the upstream.
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

// retryAfter is when a client that was turned away may ask again, in whole
// seconds: at the next probe, but not sooner than in one and not later than in thirty.
func (d *admissionQueue) retryAfter() int {
	wait := d.guard.NextEvent() - d.elapsed()
	return int(min(max((wait+time.Second-1)/time.Second, 1), 30))
}

// close ends timer and probes as soon as nobody waits in the queue any more, which
// it waits for only when that is now.
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
