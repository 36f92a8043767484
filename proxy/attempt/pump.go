package attempt

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// past is a deadline that ends any read or write at once.
var past = time.Unix(1, 0)

// stuckAfter is how long an upstream may accept no byte of a body before the upload counts as
// stuck. On loopback its system acknowledges up to 64 KiB at once, and only after the application
// has read them.
const stuckAfter = time.Second

// vanishedFor is how long the upstream's system must have acknowledged nothing after the
// retransmissions that rawsocket.Unacknowledged requires, which take 3 s. Together they are
// rawsocket.AckWithin, so that an upload is given up no sooner than a request that was sent whole.
const vanishedFor = 2 * time.Second

// upload sends the request of an attempt and watches the client. The goroutine that makes the attempt
// sends a request that is small and here at once.
//
// A second goroutine, the pump, runs only if one is not enough: a body streams while the response is
// awaited, a dial is in progress, or the upstream is slow. It reads from the client: first the body,
// then anything, to notice at once that the client left. The goroutine that makes the attempt starts
// it, and stop waits for its end.
type upload struct {
	a *Attempt

	stopping  atomic.Bool   // the pump must end
	lastPiece atomic.Bool   // the pump is writing the end of the body
	done      chan struct{} // closed when it has ended
	cancel    func()        // cancels a dial in progress

	takenSeen uint64        // bytes taken at the last check for a stuck upload
	takenAt   clock.Instant // when takenSeen last changed
	unackedAt clock.Instant // since when the upstream acknowledges nothing; zero: it does

	vec      [8][]byte // the parts of one write to the upstream; owned by the pump while it runs
	sizeLine [18]byte  // of the chunk being sent: 16 digits and a line end

	running bool // the pump runs; used by the goroutine that makes the attempt only
	spliced bool // the kernel has moved some of the body

	// notReusable means that the connection must not carry another request, because the upstream may
	// see the end of this request elsewhere.
	notReusable    bool
	respondedEarly bool // part of the response came before the request was sent whole; the pump's
}

func (u *upload) up() *upstream.Conn { return u.a.conn.up }

// start sends the rest of the body, then watches the client.
func (u *upload) start() {
	u.takenSeen, u.takenAt, u.unackedAt = 0, u.a.now(), 0
	u.run(nil, true)
}

// startWatch watches the client. If cancel is not nil, it is called when the client leaves.
func (u *upload) startWatch(cancel func()) { u.run(cancel, false) }

func (u *upload) run(cancel func(), send bool) {
	if u.running {
		return
	}
	u.running, u.cancel = true, cancel
	u.stopping.Store(false)
	u.a.client().LendClient()
	u.done = make(chan struct{})
	go func() {
		defer close(u.done)
		defer func() { u.contain(recover()) }()
		if (!send || u.sendRest()) && u.a.client().WatchClient() {
			u.clientFailed(ErrClientGone)
		}
	}()
}

// contain keeps a panic in the second goroutine from ending the process. The request ends as if
// its client had left, and the goroutine that makes the attempt returns all resources.
func (u *upload) contain(fault any) {
	if fault == nil {
		return
	}
	u.a.host().OnFault(fault)
	u.clientFailed(ErrClientGone)
}

// stop ends the pump, if it runs, and waits for its end. The caller then owns what the pump owned.
func (u *upload) stop() {
	if u.running {
		u.end()
	}
}

func (u *upload) end() {
	u.stopping.Store(true)
	u.a.client().InterruptClient()
	if u.up() != nil && u.a.progress.Load() == sending {
		_ = u.up().SetWriteDeadline(past)
	}
	<-u.done
	u.running, u.cancel = false, nil
	u.stopping.Store(false)
	u.a.client().ReturnClient()
	u.a.conn.forgetRead()
}

// endWrites makes the pump's write fail without a record of a failure.
func (u *upload) endWrites() {
	if u.running {
		u.stopping.Store(true) // before the deadline, so that the pump's write does not count as a failure
	}
	_ = u.up().SetDeadline(past)
	u.stop()
}

// awaitLastWrite waits up to 10 ms for the pump if a response arrived during the last write. The
// upstream has read that piece, and the write is about to return.
func (u *upload) awaitLastWrite() {
	for n := 0; n < 100 && u.lastPiece.Load() && u.hasBody(); n++ {
		time.Sleep(100 * time.Microsecond)
	}
}

// hasBody reports whether the pump owns the body.
func (u *upload) hasBody() bool { return u.running && u.a.progress.Load() == sending }

func (u *upload) failed() bool {
	u.a.progress.Store(writeFailed)
	u.wakeUpstream()
	return !u.stopping.Load()
}

func (u *upload) finished() bool {
	u.sentWhole()
	u.wakeUpstream()
	return true
}

func (u *upload) sentWhole() {
	u.a.source().Arrived()
	u.a.sentWholeAt(u.a.now())
}

// wakeUpstream makes a read from the upstream return, so that its deadline is computed anew.
func (u *upload) wakeUpstream() {
	if u.cancel != nil {
		u.cancel()
	}
	if u.up() != nil {
		_ = u.up().SetReadDeadline(past)
	}
}

// clientFailed reports why the client's side ended and wakes the goroutine that waits for the upstream.
func (u *upload) clientFailed(err error) {
	u.a.client().ClientFailed(err)
	u.wakeUpstream()
}

// leftWhileStuck reports whether the client has left while the upstream reads none of its body.
// The pump is stuck in a write and cannot detect that.
func (u *upload) leftWhileStuck() bool {
	if !u.hasBody() {
		return false
	}
	now := u.a.now()
	if n := uint64(u.a.source().Pieces()) + u.up().Acked(); n != u.takenSeen {
		u.takenSeen, u.takenAt = n, now
		return false
	}
	return now.Sub(u.takenAt) >= stuckAfter && u.a.client().ClientHungUp()
}

// upstreamVanished reports whether the upstream's system acknowledges nothing of a body in flight. A
// pump that waits for the client, or splices, cannot detect that.
func (u *upload) upstreamVanished() bool {
	if !u.hasBody() || !u.up().Unacknowledged() {
		u.unackedAt = 0
		return false
	}
	now := u.a.now()
	if u.unackedAt.IsZero() {
		u.unackedAt = now
	}
	return now.Sub(u.unackedAt) >= vanishedFor
}
