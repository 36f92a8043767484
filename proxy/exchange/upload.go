package exchange

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// upload sends the body of a request upstream and watches the client meanwhile. It owns the read
// side of the client's connection and the body.
//
// The pump is its second goroutine. It is started only if one is not enough: a body streams while
// the response is awaited, a dial is in progress, or the upstream takes long. It reads from the
// client: first the body, then anything, to notice at once that the client left. The goroutine of
// the exchange starts it and waits for its end in stop.
type upload struct {
	*current
	request.Pump
	stopped chan struct{} // closed when the pump is to end
	done    chan struct{} // closed when it has ended
	cancel  func()        // cancels a dial in progress

	lastPiece atomic.Bool   // the pump is writing the end of the body
	pieces    atomic.Uint32 // pieces of the body that the pump has moved

	takenSeen uint64        // bytes taken at the last check for a stuck upload
	takenAt   clock.Instant // when takenSeen last changed

	vec      [8][]byte // the parts of one write to the upstream; the pump's while it runs
	sizeLine [24]byte  // of the chunk that is being sent
	spliced  io.LimitedReader
}

// startPump sends the rest of the body, then watches the client.
func (u *upload) start() {
	u.takenSeen, u.takenAt = 0, u.r.Now()
	u.run(nil, true)
}

// startWatch watches the client. If cancel is not nil, it is called when the client leaves.
func (u *upload) startWatch(cancel func()) { u.run(cancel, false) }

func (u *upload) run(cancel func(), send bool) {
	if u.Running {
		return
	}
	u.Running, u.cancel = true, cancel
	u.Stopping.Store(false)
	u.stopped, u.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(u.done)
		defer func() { u.contain(recover()) }()
		if !send || u.sendRest() {
			u.watch()
		}
	}()
}

// containPump is Server.contain for the second goroutine. The request ends as if its client had
// left, and the goroutine of the exchange returns all resources.
func (u *upload) contain(fault any) {
	if fault == nil {
		return
	}
	u.r.Process.OnFault(fault)
	u.clientFailed(attempt.ErrClientGone)
}

// stopPump ends the second goroutine, if one runs. The exchange then owns what the pump owned.
func (u *upload) stop() {
	if u.Running {
		u.end()
	}
}

func (u *upload) end() {
	u.Stopping.Store(true)
	close(u.stopped)
	_ = u.r.Conn.NC.SetReadDeadline(downstream.Past)
	if u.att.Up != nil && u.att.Progress.Load() == attempt.Sending {
		_ = u.att.Up.SetWriteDeadline(downstream.Past)
	}
	<-u.done
	u.Running, u.cancel = false, nil
	u.Stopping.Store(false)
	u.r.Conn.ReadAt, u.att.ReadBy = clock.LongAgo, 0
}

// pumpBody sends the rest of the body, or as much as the upstream takes. It reports whether to
// watch the client afterwards.
func (u *upload) sendRest() bool {
	for {
		u.pieces.Add(1)
		if u.canSplice() {
			if more, watch := u.spliceBody(); !more {
				return watch
			}
		}
		piece, err := u.r.Body.Next(0)
		if err == request.ErrStopped {
			return false
		}
		if err != nil && err != io.EOF {
			u.clientFailed(err)
			return false
		}
		end := err == io.EOF || u.r.Body.AtEnd()
		u.lastPiece.Store(end)
		if _, err := u.write(piece, end); err != nil {
			return u.failed()
		}
		if end {
			return u.finished()
		}
	}
}

// awaitLastWrite gives the pump up to 10 ms if a response arrived while it wrote the last piece:
// the upstream has read it, and only the pump does not know yet.
func (u *upload) awaitLastWrite() {
	for n := 0; n < 100 && u.lastPiece.Load() && u.hasBody(); n++ {
		time.Sleep(100 * time.Microsecond)
	}
}

// uploading reports whether the pump owns the body.
func (u *upload) hasBody() bool { return u.Running && u.att.Progress.Load() == attempt.Sending }

// replay returns whether the body can be replayed, as far as is known while the pump owns it.
func (u *upload) replay() policy.Replay {
	if !u.hasBody() {
		return u.r.Body.Replay()
	}
	if lost := policy.Replay(u.r.Body.ReplayLoss.Load()); lost != policy.ReplayWhole {
		return lost
	}
	return policy.ReplayUnfinished
}

func (u *upload) failed() bool {
	u.att.Progress.Store(attempt.WriteFailed)
	u.wakeUpstream()
	return !u.Stopping.Load()
}

func (u *upload) finished() bool {
	u.att.SentWhole()
	u.wakeUpstream()
	return true
}

// wakeUpstream makes a read from the upstream return, so that its deadline is computed anew.
func (u *upload) wakeUpstream() {
	if u.cancel != nil {
		u.cancel()
	}
	if u.att.Up != nil {
		_ = u.att.Up.SetReadDeadline(downstream.Past)
	}
}

// watch reads what the client sends ahead until the client leaves or the watch is stopped.
func (u *upload) watch() {
	c := u.r.Conn
	_ = c.NC.SetReadDeadline(time.Time{})
	for !u.Stopping.Load() {
		switch err := u.watchOnce(); {
		case err == nil:
		case rawsocket.IsTimeout(err):
			_ = c.NC.SetReadDeadline(time.Time{}) // a late call that meant a wait before this one; stopPump says stop first
		default:
			u.clientFailed(attempt.ErrClientGone)
			return
		}
	}
}

func (u *upload) watchOnce() error {
	c := u.r.Conn
	if c.W < len(c.In) {
		return c.Fill()
	}
	select {
	case <-u.stopped:
		return nil
	case <-time.After(pollEvery):
	}
	if c.HungUp() {
		return attempt.ErrClientGone
	}
	return nil
}
