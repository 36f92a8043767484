// Package upload sends the body of a request upstream, and watches the client during the attempt.
// The goroutine of the exchange sends a body that is small and here at once. A second goroutine,
// the pump, sends a larger or slower one while the response is awaited. A large body that is not
// kept moves inside the kernel.
package upload

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// stuckAfter is how long an upstream may accept no byte of a body before the upload counts as
// stuck. On loopback its system acknowledges up to 64 KiB at once, and only after the application
// has read them.
const stuckAfter = time.Second

// vanishedFor is how long the upstream's system must have acknowledged nothing after the
// retransmissions that rawsocket.Unacknowledged requires, which take 3 s. Together they are
// rawsocket.AckWithin, so that an upload is given up no sooner than a request that was sent whole.
const vanishedFor = 2 * time.Second

// Upload sends the body of a request upstream and watches the client. It owns the read side of the
// client's connection and the body.
//
// The pump is its second goroutine. It runs only if one goroutine is not enough: a body streams
// while the response is awaited, a dial is in progress, or the upstream is slow. It reads from the
// client: first the body, then anything, to notice at once that the client left. The goroutine of
// the exchange starts it, and Stop waits for its end. Only Pieces and AwaitedSince are safe for
// concurrent use.
type Upload struct {
	r    *request.Request
	att  *attempt.Attempt // the attempt that gets the body
	Pump request.Pump

	stopped chan struct{} // closed when the pump must end
	done    chan struct{} // closed when it has ended
	cancel  func()        // cancels a dial in progress

	awaitedFrom atomic.Int64 // instant since when the rest of the body is awaited; zero: it is not

	lastPiece atomic.Bool   // the pump is writing the end of the body
	pieces    atomic.Uint32 // pieces of the body that the pump has moved

	takenSeen uint64        // bytes taken at the last check for a stuck upload
	takenAt   clock.Instant // when takenSeen last changed
	unackedAt clock.Instant // since when the upstream acknowledges nothing; zero: it does

	vec      [8][]byte // the parts of one write to the upstream; owned by the pump while it runs
	sizeLine [24]byte  // of the chunk being sent
	splicer  attempt.Splicer
}

// Init prepares the upload of a connection for its first use.
func (u *Upload) Init(r *request.Request) {
	u.r = r
	r.Body.Pump = &u.Pump
}

// Serve makes a the attempt that gets the body from now on.
func (u *Upload) Serve(a *attempt.Attempt) {
	u.att = a
	if u.lastPiece.Load() { // a load is cheaper than a store
		u.lastPiece.Store(false)
	}
}

// Pieces returns how many pieces of bodies the pump has moved. It is safe for concurrent use.
func (u *Upload) Pieces() uint32 { return u.pieces.Load() }

// AwaitBody records that not all of the body has arrived yet.
func (u *Upload) AwaitBody(now clock.Instant) {
	u.awaitedFrom.Store(int64(now))
	u.r.Conn.BeginBody()
}

// BodyCame records that nothing more of the body is awaited.
func (u *Upload) BodyCame() {
	if u.awaitedFrom.Load() != 0 { // a load is cheaper than a store
		u.awaitedFrom.Store(0)
	}
}

// AwaitedSince returns since when the rest of the body is awaited; zero means that it is not. It is
// safe for concurrent use.
func (u *Upload) AwaitedSince() clock.Instant { return clock.Instant(u.awaitedFrom.Load()) }

// Start sends the rest of the body, then watches the client.
func (u *Upload) Start() {
	u.takenSeen, u.takenAt, u.unackedAt = 0, u.r.Time.Now(), 0
	u.run(nil, true)
}

// StartWatch watches the client. If cancel is not nil, it is called when the client leaves.
func (u *Upload) StartWatch(cancel func()) { u.run(cancel, false) }

func (u *Upload) run(cancel func(), send bool) {
	if u.Pump.Running {
		return
	}
	u.Pump.Running, u.cancel = true, cancel
	u.Pump.Stopping.Store(false)
	u.stopped, u.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(u.done)
		defer func() { u.contain(recover()) }()
		if !send || u.sendRest() {
			u.watch()
		}
	}()
}

// contain keeps a panic in the second goroutine from ending the process. The request ends as if
// its client had left, and the goroutine of the exchange returns all resources.
func (u *Upload) contain(fault any) {
	if fault == nil {
		return
	}
	u.r.Process.Fault(fault)
	u.ClientFailed(attempt.ErrClientGone)
}

// Stop ends the second goroutine, if it runs, and waits for its end. The exchange then owns what
// the pump owned.
func (u *Upload) Stop() {
	if u.Pump.Running {
		u.end()
	}
}

func (u *Upload) end() {
	u.Pump.Stopping.Store(true)
	close(u.stopped)
	_ = u.r.Conn.NC.SetReadDeadline(downstream.Past)
	if u.att.Up != nil && u.att.Progress.Load() == attempt.Sending {
		_ = u.att.Up.SetWriteDeadline(downstream.Past)
	}
	<-u.done
	u.Pump.Running, u.cancel = false, nil
	u.Pump.Stopping.Store(false)
	u.r.Conn.ReadMoved()
	u.att.ReadBy = 0
}

// AwaitLastWrite waits up to 10 ms for the pump if a response arrived during the last write. The
// upstream has read that piece, and the write is about to return.
func (u *Upload) AwaitLastWrite() {
	for n := 0; n < 100 && u.lastPiece.Load() && u.HasBody(); n++ {
		time.Sleep(100 * time.Microsecond)
	}
}

// HasBody reports whether the pump owns the body.
func (u *Upload) HasBody() bool { return u.Pump.Running && u.att.Progress.Load() == attempt.Sending }

// Replay returns whether the body can be replayed, as far as is known while the pump owns it.
func (u *Upload) Replay() policy.Replay {
	if !u.HasBody() {
		return u.r.Body.Replay()
	}
	if lost := policy.Replay(u.r.Body.ReplayLoss.Load()); lost != policy.ReplayWhole {
		return lost
	}
	return policy.ReplayUnfinished
}

func (u *Upload) failed() bool {
	u.att.Progress.Store(attempt.WriteFailed)
	u.wakeUpstream()
	return !u.Pump.Stopping.Load()
}

func (u *Upload) finished() bool {
	u.BodyCame()
	u.att.SentWhole()
	u.wakeUpstream()
	return true
}

// wakeUpstream makes a read from the upstream return, so that its deadline is computed anew.
func (u *Upload) wakeUpstream() {
	if u.cancel != nil {
		u.cancel()
	}
	if u.att.Up != nil {
		_ = u.att.Up.SetReadDeadline(downstream.Past)
	}
}

// watch reads what the client sends early, until the client leaves or the watch is stopped.
func (u *Upload) watch() {
	c := u.r.Conn
	_ = c.NC.SetReadDeadline(time.Time{})
	for !u.Pump.Stopping.Load() {
		switch err := u.watchOnce(); {
		case err == nil:
		case rawsocket.IsTimeout(err):
			_ = c.NC.SetReadDeadline(time.Time{}) // a late wake-up for an earlier wait; Stop sets Stopping first
		default:
			u.ClientFailed(attempt.ErrClientGone)
			return
		}
	}
}

func (u *Upload) watchOnce() error {
	c := u.r.Conn
	if c.HasRoom() {
		return c.Fill()
	}
	select {
	case <-u.stopped:
		return nil
	case <-time.After(downstream.PollEvery):
	}
	if c.HungUp() {
		return attempt.ErrClientGone
	}
	return nil
}

// LeftWhileStuck reports whether the client has left while the upstream reads none of its body.
// The pump is stuck in a write and cannot detect that.
func (u *Upload) LeftWhileStuck() bool {
	if !u.HasBody() {
		return false
	}
	now := u.r.Time.Now()
	if n := uint64(u.pieces.Load()) + u.att.Up.Acked(); n != u.takenSeen {
		u.takenSeen, u.takenAt = n, now
		return false
	}
	return now.Sub(u.takenAt) >= stuckAfter && u.r.Conn.HungUp()
}

// UpstreamVanished reports whether the upstream's system acknowledges nothing of a body in flight. A
// pump that waits for the client, or splices, cannot detect that.
func (u *Upload) UpstreamVanished() bool {
	if !u.HasBody() || !u.att.Up.Unacknowledged() {
		u.unackedAt = 0
		return false
	}
	now := u.r.Time.Now()
	if u.unackedAt.IsZero() {
		u.unackedAt = now
	}
	return now.Sub(u.unackedAt) >= vanishedFor
}

// FetchBody reads the client's whole body, even if none of it was read yet.
func (u *Upload) FetchBody() {
	b := &u.r.Body
	if b.Ended || !b.Keeping {
		return
	}
	if !b.Started {
		b.Started, b.Began = true, u.r.Time.Now()
	}
	u.FinishBody(u.r.Time.RespondBy(u.r.Route.RequestTimeout))
}

// FinishBody reads the rest of the request body and keeps it, as far as it arrives before until;
// zero means no limit.
func (u *Upload) FinishBody(until clock.Instant) {
	u.r.ContinueClient()
	if err := u.r.Body.Finish(until); err != nil {
		u.ClientFailed(err)
	}
	if u.r.Body.Ended {
		u.BodyCame()
	}
}

// ClientFailed records why the client's side ended and wakes the goroutine that waits for the
// upstream. The pump calls it, or the exchange while no pump runs.
func (u *Upload) ClientFailed(err error) {
	u.r.ClientFailed(err)
	u.wakeUpstream()
}
