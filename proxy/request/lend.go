package request

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// The goroutine that serves a request also reads from its client. While it waits for the upstream, it
// lends that to another goroutine, which sends the body and notices at once that the client leaves.

// isInterrupted reports whether the goroutine that was lent the client has to stop.
func (b *Body) isInterrupted() bool { return b.of.lending.interrupted.Load() }

// lending is the state of reading from the client.
type lending struct {
	lent        bool          // another goroutine reads
	interrupted atomic.Bool   // that goroutine must end
	stopped     chan struct{} // closed with interrupted
}

// LendClient lets another goroutine read from the client until ReturnClient.
func (cr *Request) LendClient() {
	cr.lending.lent, cr.lending.stopped = true, make(chan struct{})
	cr.lending.interrupted.Store(false)
}

// InterruptClient ends at once what that goroutine waits for. It is called once.
func (cr *Request) InterruptClient() {
	cr.lending.interrupted.Store(true)
	close(cr.lending.stopped)
	_ = cr.Conn.NC.SetReadDeadline(downstream.Past)
}

// ReturnClient ends the loan after the other goroutine has ended.
func (cr *Request) ReturnClient() {
	cr.lending.lent = false
	cr.lending.interrupted.Store(false)
	cr.Conn.ReadMoved()
}

// WatchClient reads what the client sends early, until it leaves or InterruptClient is called. It
// reports whether the client left.
func (cr *Request) WatchClient() bool {
	c := cr.Conn
	_ = c.NC.SetReadDeadline(time.Time{})
	for !cr.lending.interrupted.Load() {
		switch err := cr.watchOnce(); {
		case err == nil:
		case rawsocket.IsTimeout(err):
			_ = c.NC.SetReadDeadline(time.Time{}) // a late wake-up for an earlier wait
		default:
			return true
		}
	}
	return false
}

func (cr *Request) watchOnce() error {
	c := cr.Conn
	if c.HasRoom() {
		return c.Fill()
	}
	select {
	case <-cr.lending.stopped:
		return nil
	case <-time.After(downstream.PollEvery):
	}
	if c.HungUp() {
		return attempt.ErrClientGone
	}
	return nil
}

// ClientHungUp reports whether the client has closed its side, even if bytes of it are unread.
func (cr *Request) ClientHungUp() bool { return cr.Conn.HungUp() }

// FetchBody reads the client's whole body, even if none of it was read yet.
func (cr *Request) FetchBody() {
	if cr.Body.beginToFinish() {
		cr.FinishBody(cr.Time.RespondBy(cr.Route.RequestTimeout))
	}
}

// FinishBody reads the rest of the request body and keeps it, as far as it arrives before until;
// zero means no limit.
func (cr *Request) FinishBody(until clock.Instant) {
	cr.ContinueClient()
	if err := cr.Body.finish(until); err != nil {
		cr.ClientFailed(err)
	}
	if cr.Body.ended {
		cr.Body.Arrived()
	}
}
