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
func (r *Request) LendClient() {
	r.lending.lent, r.lending.stopped = true, make(chan struct{})
	r.lending.interrupted.Store(false)
}

// InterruptClient ends at once what that goroutine waits for. It is called once.
func (r *Request) InterruptClient() {
	r.lending.interrupted.Store(true)
	close(r.lending.stopped)
	_ = r.Conn.NC.SetReadDeadline(downstream.Past)
}

// ReturnClient ends the loan after the other goroutine has ended.
func (r *Request) ReturnClient() {
	r.lending.lent = false
	r.lending.interrupted.Store(false)
	r.Conn.ReadMoved()
}

// WatchClient reads what the client sends early, until it leaves or InterruptClient is called. It
// reports whether the client left.
func (r *Request) WatchClient() bool {
	c := r.Conn
	_ = c.NC.SetReadDeadline(time.Time{})
	for !r.lending.interrupted.Load() {
		switch err := r.watchOnce(); {
		case err == nil:
		case rawsocket.IsTimeout(err):
			_ = c.NC.SetReadDeadline(time.Time{}) // a late wake-up for an earlier wait
		default:
			return true
		}
	}
	return false
}

func (r *Request) watchOnce() error {
	c := r.Conn
	if c.HasRoom() {
		return c.Fill()
	}
	select {
	case <-r.lending.stopped:
		return nil
	case <-time.After(downstream.PollEvery):
	}
	if c.HungUp() {
		return attempt.ErrClientGone
	}
	return nil
}

// ClientHungUp reports whether the client has closed its side, even if bytes of it are unread.
func (r *Request) ClientHungUp() bool { return r.Conn.HungUp() }

// FetchBody reads the client's whole body, even if none of it was read yet.
func (r *Request) FetchBody() {
	if r.Body.beginToFinish() {
		r.FinishBody(r.Time.RespondBy(r.Route.RequestTimeout))
	}
}

// FinishBody reads the rest of the request body and keeps it, as far as it arrives before until;
// zero means no limit.
func (r *Request) FinishBody(until clock.Instant) {
	r.ContinueClient()
	if err := r.Body.finish(until); err != nil {
		r.ClientFailed(err)
	}
	if r.Body.ended {
		r.Body.Arrived()
	}
}
