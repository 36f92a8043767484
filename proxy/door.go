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

// door is where attempts enter one upstream. The policy.Guard decides; here
// stand those who have to wait, and here run the timer and the probe that the
// Guard asks for.
type door struct {
	guard   *policy.Guard
	breaks  bool // the guard has a breaker
	pool    *upstream.Group
	elapsed func() time.Duration
	drain   *atomic.Bool // the server drains
	order   QueueOrder

	mu        sync.Mutex // guards all below, and the order of Guard.Enter and Guard.Next
	line      *policy.Queue[*waiter]
	timer     *time.Timer
	closed    bool
	probes    sync.WaitGroup
	log       func(msg string, fields ...zap.Field) // told when the upstream goes down and comes back
	lastCause func() []zap.Field                    // of the last failed connection
	down      time.Time                             // when the breaker opened, as far as was told; zero: open
	queueTold atomic.Bool                           // that requests are queued, since the breaker opened
	late      map[*upstream.Conn]struct{}           // probes still read from
	undecided []*waiter                             // await the opening of the breaker; see awaitBreaker
	shared    sharedBreaker                         // with other processes

	ask   []byte          // the request that probes; nil: none of our own does
	asked probeCounts     // what came of it
	dials context.Context // ends with the door; for dials of probes
	stop  context.CancelFunc
}

// waiter is an exchange in line. Its exchange owns it; the door writes to it
// while it is in line.
type waiter struct {
	c     *conn
	word  atomic.Int32  // what the door said
	turn  time.Duration // when it expects to be let in, since the server's start; 0: at any time
	place policy.Permit
	asks  policy.Request // what it waits to send
}

// whole reports whether the waiter's request is here whole.
func (w *waiter) whole() bool { return !w.asks.Unfinished }

// What the door says to a waiter.
const (
	wordWait int32 = iota
	wordGo
	wordProbe
	wordDropped // the line was full and it was the oldest
	wordDrained // the breaker opened in a drain
)

func newDoor(s *Server, pool *upstream.Group, r *Route, log *zap.Logger) *door {
	o, ask := r.Guard, r.Probe.request(r.Upstream.Host)
	o.ActiveProbe, o.ConnectProbe = ask != nil, true
	d := &door{
		log: log.Warn, guard: policy.NewGuard(o), breaks: !o.NoBreaker, pool: pool, elapsed: s.elapsed, drain: &s.draining, order: r.QueueOrder, line: policy.NewQueue[*waiter](r.QueueMax),
		late: map[*upstream.Conn]struct{}{}, ask: ask, lastCause: func() []zap.Field { return nil },
	}
	d.dials, d.stop = context.WithCancel(context.Background())
	d.timer = time.AfterFunc(time.Hour, d.tick)
	d.timer.Stop()
	return d
}

// enter asks for a place. With wordWait the waiter stands in line and will be
// told; patient false: it does not want to, and does not stand there.
func (d *door) enter(w *waiter, now time.Duration, patience func(policy.Verdict) bool) (word int32, v policy.Verdict, t policy.Ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.place, v = d.guard.Acquire(now, w.asks)
	switch v {
	case policy.VerdictGo:
		return wordGo, v, t
	case policy.VerdictProbe:
		d.shared.want()
		d.arm()
		return wordProbe, v, t
	case policy.VerdictBreakerOpen:
		d.shared.want()
	}
	defer d.arm()
	if !patience(v) {
		d.guard.CancelWait(now, w.asks)
		return wordDropped, v, t
	}
	w.word.Store(wordWait)
	t, out, dropped := d.line.Push(w)
	if dropped {
		d.guard.CancelWait(now, out.asks)
		out.tell(wordDropped)
	}
	return wordWait, v, t
}

// tell gives a waiter its word and wakes it.
func (w *waiter) tell(word int32) {
	w.word.Store(word)
	w.c.wake(phaseBackoff)
}

// quit takes a waiter out of the line that does not want to wait any longer.
// The word says what it had been told meanwhile, if anything.
func (d *door) quit(w *waiter, t policy.Ticket) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.line.Remove(t) {
		d.guard.CancelWait(d.elapsed(), w.asks)
		d.arm()
		return wordWait
	}
	return w.word.Load()
}

// heed does what a Guard's call asked for.
func (d *door) heed(s policy.Signal) {
	if s != 0 {
		d.act(s)
	}
}

func (d *door) act(s policy.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s&policy.SignalWake != 0 {
		d.admit()
	}
	d.arm()
	d.tell()
}

// tell says that the upstream went down or came back. Called with mu held.
func (d *door) tell() {
	g := d.guard.State()
	d.shared.tell(&g)
	if g.Breaker != policy.BreakerClosed {
		d.decide()
	}
	if d.drain.Load() && !lets(g.Breaker) {
		d.dismiss()
	}
	switch name := zap.String("upstream", d.pool.Target().String()); {
	case g.Breaker != policy.BreakerClosed && d.down.IsZero():
		d.down = time.Now()
		fields := []zap.Field{name, zap.Stringer("by", g.OpenedBy)}
		if g.OpenedBy == policy.OpenedByRefused || g.OpenedBy == policy.OpenedByDial {
			fields = append(fields, d.lastCause()...)
		}
		d.log("the upstream is taken for down", fields...)
	case g.Breaker == policy.BreakerClosed && !d.down.IsZero():
		d.log("the upstream is back", name, zap.Duration("after_seconds", time.Since(d.down)))
		d.down = time.Time{}
		d.queueTold.Store(false)
	}
}

// tellQueued logs the first request of an outage that is queued, which may be for
// up to timeout: its client sees nothing until then.
func (d *door) tellQueued(timeout time.Duration) {
	if d.queueTold.Load() || d.queueTold.Swap(true) {
		return
	}
	msg := "the upstream is down; requests are queued"
	if d.guard.State().OpenedBy == policy.OpenedByRefused {
		msg = "the upstream refuses connections; requests are queued"
	}
	d.log(msg, zap.String("upstream", d.pool.Target().String()), zap.Duration("queue_timeout_seconds", timeout))
}

// shut says whether nobody is let in but a probe.
func (d *door) shut() bool { return !lets(d.guard.State().Breaker) }

func lets(g policy.BreakerState) bool {
	return g == policy.BreakerClosed || g == policy.BreakerSlowStart
}

// dismiss turns away all who stand in line, in a drain. Called with mu held.
func (d *door) dismiss() {
	now := d.elapsed()
	for d.line.Len() > 0 {
		w, _ := d.line.Oldest()
		d.guard.CancelWait(now, w.asks)
		w.tell(wordDrained)
	}
	d.arm()
}

// admit lets in whom the Guard has places for, in the order of the queue. Called with mu held.
func (d *door) admit() {
	now := d.elapsed()
	next, take, takeThat := d.line.Last, d.line.Newest, d.line.NewestThat
	if d.order == QueueOldest {
		next, take, takeThat = d.line.First, d.line.Oldest, d.line.OldestThat
	}
	for d.line.Len() > 0 {
		head, _ := next()
		place, v := d.guard.Next(now, head.asks)
		switch v {
		case policy.VerdictGo:
			d.admitOne(take, place, wordGo)
		case policy.VerdictProbe:
			d.admitOne(func() (*waiter, bool) { return takeThat((*waiter).whole) }, place, wordProbe)
		default:
			return
		}
	}
}

// admitOne gives the place to whom take takes out of the line. Called with mu held.
func (d *door) admitOne(take func() (*waiter, bool), place policy.Permit, word int32) {
	if w, ok := take(); ok {
		w.place = place
		w.tell(word)
	}
}

// arm sets the timer to the Guard's next event. Called with mu held, after every
// change of the line.
func (d *door) arm() {
	at := d.guard.NextEvent()
	if d.ended() {
		d.endProbes()
		at = policy.Forever
	}
	if at == policy.Forever {
		d.timer.Stop()
		return
	}
	d.timer.Reset(max(at-d.elapsed(), 0))
}

// ended says whether the door is closed and was left by the last who stood in
// line: after a reload, requests queued here are still let in. Called with mu held.
func (d *door) ended() bool { return d.closed && d.line.Len() == 0 }

// tick is the timer's.
func (d *door) tick() {
	s := d.guard.Expire(d.elapsed())
	d.probe()
	d.heed(s | policy.SignalEvent)
}

// dialEnding is what a failed dial tells about the upstream.
func dialEnding(err error) policy.EndKind {
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
func (d *door) retryAfter() int {
	wait := d.guard.NextEvent() - d.elapsed()
	return int(min(max((wait+time.Second-1)/time.Second, 1), 30))
}

// close ends timer and probes as soon as nobody stands in line any more, which
// it waits for only when that is now.
func (d *door) close() {
	d.mu.Lock()
	d.closed = true
	d.arm()
	ended := d.ended()
	d.mu.Unlock()
	if ended {
		d.probes.Wait()
	}
}
