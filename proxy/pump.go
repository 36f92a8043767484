package proxy

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// The pump is the second goroutine of an exchange. It is started only if one is not enough: a
// body streams while the response is awaited, a dial is in progress, or the upstream takes
// long. It reads from the client: first the body, then anything, to notice at once that the
// client left. The goroutine of the exchange starts it and waits for its end in stopPump.
// While it runs, it owns the read side of the client's connection and the body.

// startPump sends the rest of the body, then watches the client.
func (x *exchange) startPump() {
	x.takenSeen, x.takenAt = 0, x.now()
	x.startSecond(nil, true)
}

// startWatch watches the client. If cancel is not nil, it is called when the client leaves.
func (x *exchange) startWatch(cancel func()) { x.startSecond(cancel, false) }

func (x *exchange) startSecond(cancel func(), send bool) {
	if x.pumping {
		return
	}
	x.pumping, x.cancel = true, cancel
	x.stop.Store(false)
	x.stopped, x.pumpDone = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(x.pumpDone)
		defer func() { x.containPump(recover()) }()
		if !send || x.pumpBody() {
			x.watch()
		}
	}()
}

// containPump is Server.contain for the second goroutine. The request ends as if its client had
// left, and the goroutine of the exchange returns all resources.
func (x *exchange) containPump(fault any) {
	if fault == nil {
		return
	}
	x.c.server.report(fault)
	x.clientFailed(errClientGone)
}

// stopPump ends the second goroutine, if one runs. The exchange then owns what the pump owned.
func (x *exchange) stopPump() {
	if x.pumping {
		x.endPump()
	}
}

func (x *exchange) endPump() {
	x.stop.Store(true)
	close(x.stopped)
	_ = x.c.nc.SetReadDeadline(past)
	if x.up != nil && x.progress.Load() == sending {
		_ = x.up.SetWriteDeadline(past)
	}
	<-x.pumpDone
	x.pumping, x.cancel = false, nil
	x.stop.Store(false)
	x.c.readAt, x.upUntil = longAgo, 0
}

// pumpBody sends the rest of the body, or as much as the upstream takes. It reports whether to
// watch the client afterwards.
func (x *exchange) pumpBody() bool {
	for {
		x.pieces.Add(1)
		if x.canSplice() {
			if more, watch := x.spliceBody(); !more {
				return watch
			}
		}
		piece, err := x.body.next(0)
		if err == errStopped {
			return false
		}
		if err != nil && err != io.EOF {
			x.clientFailed(err)
			return false
		}
		end := err == io.EOF || x.body.atEnd()
		x.lastPiece.Store(end)
		if _, err := x.writeRequest(piece, end); err != nil {
			return x.sendFailed()
		}
		if end {
			return x.sendDone()
		}
	}
}

// awaitLastWrite gives the pump up to 10 ms if a response arrived while it wrote the last piece:
// the upstream has read it, and only the pump does not know yet.
func (x *exchange) awaitLastWrite() {
	for n := 0; n < 100 && x.lastPiece.Load() && x.uploading(); n++ {
		time.Sleep(100 * time.Microsecond)
	}
}

// uploading reports whether the pump owns the body.
func (x *exchange) uploading() bool { return x.pumping && x.progress.Load() == sending }

// replay returns whether the body can be replayed, as far as is known while the pump owns it.
func (x *exchange) replay() policy.Replay {
	if !x.uploading() {
		return x.body.replay()
	}
	if lost := policy.Replay(x.body.replayLoss.Load()); lost != policy.ReplayWhole {
		return lost
	}
	return policy.ReplayUnfinished
}

func (x *exchange) sendFailed() bool {
	x.progress.Store(writeFailed)
	x.wakeUpstream()
	return !x.stop.Load()
}

func (x *exchange) sendDone() bool {
	x.sentWhole()
	x.wakeUpstream()
	return true
}

// wakeUpstream makes a read from the upstream return, so that its deadline is computed anew.
func (x *exchange) wakeUpstream() {
	if x.cancel != nil {
		x.cancel()
	}
	if x.up != nil {
		_ = x.up.SetReadDeadline(past)
	}
}

// watch reads what the client sends ahead until the client leaves or the watch is stopped.
func (x *exchange) watch() {
	c := x.c
	_ = c.nc.SetReadDeadline(time.Time{})
	for !x.stop.Load() {
		switch err := x.watchOnce(); {
		case err == nil:
		case isTimeout(err):
			_ = c.nc.SetReadDeadline(time.Time{}) // a late call that meant a wait before this one; stopPump says stop first
		default:
			x.clientFailed(errClientGone)
			return
		}
	}
}

func (x *exchange) watchOnce() error {
	c := x.c
	if c.w < len(c.in) {
		return c.fill()
	}
	select {
	case <-x.stopped:
		return nil
	case <-time.After(pollEvery):
	}
	if c.hungUp() {
		return errClientGone
	}
	return nil
}
