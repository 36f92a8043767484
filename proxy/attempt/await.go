package attempt

import (
	"errors"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// unwatched is how long the goroutine that makes the attempt waits for the upstream before the pump
// watches the client, or at least leastUnwatched. It stays below the 250 ms after which a response may be overdue:
// else a client that left early would be taken for one that left late, which is evidence against the upstream.
//
// The deadline that ends this wait is not moved before it has passed, and a wait that it ends too early goes on. If a
// deadline is moved, the runtime wakes two threads both at its old time and at the new one, even if nobody waits then
// (bench/peers --cases paced).
const (
	unwatched      = 200 * time.Millisecond
	leastUnwatched = unwatched / 2
)

// lateResponse is how long to wait for a response after the upstream stopped reading the request.
const lateResponse = time.Second

// errOvertaken ends reading from an attempt when its hedge ends.
var errOvertaken = errors.New("the other attempt of the hedged request was first")

// await reads once from the upstream into the read buffer. If idle is 0, headers are awaited and the
// deadlines of attempt and request bound the read. Otherwise the body may pause for idle. It
// returns early if the client's side ended.
func (a *Attempt) await(idle time.Duration) error {
	client := a.client()
	began, failed := client.Tick(), false
	for now := began; ; now = client.Tick() {
		progress := a.progress.Load()
		switch {
		case progress == sent:
			a.owner().SentWhole(a)
		case progress == writeFailed && idle == 0 && !failed:
			began, failed = now, true // the late response has all of its time
		}
		until := a.readUntil(began, idle, progress)
		whole := idle == 0 && progress == sent
		since, wake := began, until
		if whole {
			since, wake = a.sentAt, a.untilAckCheck(a.untilHedge(until), now)
		}
		a.setRead(wake, since, now)
		if !client.ClientStaysOn() {
			return ErrClientGone
		}
		if whole && a.hedgeOvertook() {
			return errOvertaken
		}
		if a.progress.Load() != progress {
			continue
		}
		err := a.conn.read()
		switch {
		case err == nil:
			client.Tick()
			return nil
		case !rawsocket.IsTimeout(err):
			return err
		case !client.ClientStaysOn():
			return ErrClientGone
		case a.progress.Load() == progress && !until.IsZero() && !a.now().Before(until):
			return err
		case whole && a.vanished():
			return ErrVanished
		case whole && a.hedgeDue():
			a.options.HedgeAfter = 0
			a.owner().HedgeDue()
			continue
		case a.upload.upstreamVanished():
			return ErrVanished
		case a.upload.leftWhileStuck():
			client.ClientFailed(ErrClientGone)
			return ErrClientGone
		}
		a.watchLate(since)
	}
}

// watchLate is called when the deadline has passed. It has the client watched if the wait that began at since has
// lasted long enough; otherwise the next read gets another deadline.
func (a *Attempt) watchLate(since clock.Instant) {
	if a.now().Sub(since) >= leastUnwatched {
		a.upload.startWatch(nil)
		return
	}
	a.conn.forgetRead()
}

func (a *Attempt) now() clock.Instant { return a.host().Clock.Now() }

// untilAckCheck returns until, or the time of the next check for an acknowledgement if that is
// sooner.
func (a *Attempt) untilAckCheck(until, now clock.Instant) clock.Instant {
	checks := max(now.Sub(a.sentAt), 0) / rawsocket.AckWithin
	return clock.Earliest(until, a.sentAt.Add((checks+1)*rawsocket.AckWithin))
}

// vanished reports whether the upstream's system does not acknowledge a request that was sent whole.
func (a *Attempt) vanished() bool {
	return a.now().Sub(a.sentAt) >= rawsocket.AckWithin && a.conn.up.Unacknowledged()
}

// readUntil returns when waiting for the upstream ends; zero means never.
func (a *Attempt) readUntil(began clock.Instant, idle time.Duration, progress int32) clock.Instant {
	switch {
	case idle > 0:
		return began.Add(idle)
	case progress == writeFailed:
		return began.Add(lateResponse)
	case progress == sending:
		return a.client().LeavesAt() // otherwise the upload is bounded by its rate
	}
	until := a.owner().RespondBy(a.sentAt)
	if a.options.Timeout > 0 {
		from := a.sentAt
		if a.hedge != nil {
			from = a.hedge.began // both attempts get the time of the later one
		}
		until = clock.Earliest(until, from.Add(a.options.Timeout))
	}
	return until
}

// setRead sets the read deadline of the upstream connection to until, or sooner while the client
// is not watched. The wait began at since. A deadline that ends it sooner stays, unless the pump or a hedge may have
// moved it.
func (a *Attempt) setRead(until, since, now clock.Instant) {
	if !a.upload.running || a.upload.hasBody() {
		soon := since.Add(unwatched)
		if !now.Before(soon) {
			soon = now.Add(unwatched)
		}
		if until.IsZero() || soon.Before(until) {
			until = soon
			if by := a.conn.readBy(); !a.upload.running && a.hedge == nil && now.Before(by) && !soon.Before(by) {
				return
			}
		}
	}
	a.conn.setRead(until)
}

// setReadOfPiece is setRead for a piece that the kernel moves. A deadline that is near is moved: it would end a
// piece of a fast download, and the client would be watched for the rest.
func (a *Attempt) setReadOfPiece(until, now clock.Instant) {
	if a.conn.readBy().Sub(now) < leastUnwatched {
		a.conn.forgetRead()
	}
	a.setRead(until, now, now)
}

// fillBody is like fill for a body. A body that the end of its connection ends may have been reset.
func (b *Body) fillBody(idle time.Duration) error {
	err := b.a.fill(idle)
	if err == io.EOF && b.UntilClose() && b.a.resetWhileSplicing() {
		return ErrCut
	}
	return err
}

// resetWhileSplicing reports whether the connection was reset while the kernel moved the request's
// body. A read may report that reset as an ordinary end. Package rawsocket detects it for all
// other writes. A reset after the upstream's orderly end counts too, because that end may not be
// the response's. An upload in flight is stopped.
func (a *Attempt) resetWhileSplicing() bool {
	if a.upload.hasBody() {
		a.upload.stop()
	}
	return a.upload.spliced && rawsocket.IsTCPClosed(a.conn.up.Conn)
}
