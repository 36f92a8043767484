package proxy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
)

const (
	// drainQuietTime is how long no request must arrive before idle connections are closed: a
	// client about to use one has done so by then.
	drainQuietTime = time.Second
	// drainEndGrace is how long before the end of a drain upgraded connections are ended in order,
	// at most a quarter of the drain timeout, because their two sides may never end them. Requests
	// that still wait for a permit are rejected then: a response could hardly come in time.
	drainEndGrace = 2 * time.Second
	// drainPoll is how often a drain checks whether it is done.
	drainPoll = 20 * time.Millisecond
)

// ErrDrainTimeout is returned by Drain if requests were still in flight at its end and were cut
// off.
var ErrDrainTimeout = errors.New("requests were still in flight at the end of the drain timeout and were cut off")

// drainState is the progress of the server's drain. It is safe for concurrent use.
type drainState struct {
	process  *request.Process
	active   atomic.Int64 // requests in progress, from their headers to their end
	lastBusy atomic.Int64 // while draining: when a client was last accepted or a request last ended, since started
	listens  atomic.Bool  // clients may be in an accept queue
	idleEnd  atomic.Bool  // idle connections must end
	cutOff   atomic.Int64 // requests in progress when the drain cut them off
}

func (d *drainState) begin(waitsEnd clock.Instant) {
	d.noteBusy()
	d.process.BeginDrain(waitsEnd)
}

// closingIdle reports whether idle connections must end.
func (d *drainState) closingIdle() bool { return d.idleEnd.Load() }

// quiet reports whether no request is in flight and none arrived for drainQuietTime.
func (d *drainState) quiet() bool {
	return d.active.Load() == 0 && d.process.Clock.Elapsed()-time.Duration(d.lastBusy.Load()) >= drainQuietTime
}

func (d *drainState) requestBegan() { d.active.Add(1) }

func (d *drainState) requestEnded() {
	d.active.Add(-1)
	if d.process.IsDraining() {
		d.noteBusy()
	}
}

// clientAccepted notes that a client is about to send its first request.
func (d *drainState) clientAccepted() {
	if d.process.IsDraining() {
		d.noteBusy()
	}
}

func (d *drainState) noteBusy() { d.lastBusy.Store(int64(d.process.Clock.Elapsed())) }

// Drain ends the server in order. From now on every response ends its connection, no retry begins,
// and waits for one end at once. Only a request whose event stream brought no content in time is
// still retried, if that needs no wait. A request that waits for a permit at a healthy upstream is
// admitted when one is free, until shortly before the end. The clients in the accept queues
// are accepted, then the listeners close. Idle connections stay readable until no request arrived for
// a second. Upgraded connections continue until shortly before the end; then both their sides are
// half-closed. When DrainTimeout or ctx ends, whatever is left is cut off, and Drain returns
// ErrDrainTimeout if requests were in flight. Serve returns afterwards.
func (s *Server) Drain(ctx context.Context) error {
	limit := s.settings.Load().DrainTimeout
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ending := s.now().Add(limit - min(drainEndGrace, limit/4))
	s.drain.begin(ending)
	s.connected.each(func(c *conn) {
		c.client.Wake(downstream.PhaseBackoff)
		c.http2.Load().goAway()
	})
	s.listeners.finish()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		if s.drain.quiet() {
			s.drain.idleEnd.Store(true)
			s.connected.each(func(c *conn) { c.client.Wake(downstream.PhaseIdle) })
			s.parked.Clear()
		}
		if ending.Before(s.now()) {
			s.connected.each(func(c *conn) {
				c.client.Wake(downstream.PhaseBackoff)
				c.x.EndTunnel()
			})
		}
		if !s.drain.listens.Load() && s.connected.empty() {
			s.workers.Close()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.drain.cutOff.Store(s.drain.active.Load())
			allEnded := s.allEnded()
			s.kill()
			s.workers.Close()
			if allEnded {
				return nil
			}
			return ErrDrainTimeout
		}
	}
}

// allEnded reports whether no request is in flight or in an accept queue. Clients may still be connected.
func (s *Server) allEnded() bool {
	ended := s.drain.active.Load() == 0 && !s.drain.listens.Load()
	s.connected.each(func(c *conn) {
		if h := c.http2.Load(); h != nil && h.served() != nil && h.served().Running() > 0 { // maybe it waits for a slot
			ended = false
		}
	})
	return ended
}

// CutOff returns the number of requests that Drain cut off.
func (s *Server) CutOff() int { return int(s.drain.cutOff.Load()) }
