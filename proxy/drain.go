package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/proxy/downstream"
)

const (
	// acceptGrace is how long clients that are already in the system's queue
	// are still taken after a drain begins to close the listeners.
	acceptGrace = 50 * time.Millisecond
	// drainQuietTime is how long no request may have come before the connections
	// that only idle are closed: a client about to use one has done so by then.
	drainQuietTime = time.Second
	// drainEndGrace is how long before the end of a drain connections that were
	// upgraded are ended in order, a quarter of a short drain at most: nobody knows
	// whether their two sides would end them. Whoever then still waits for a permit at
	// its upstream is refused: a response could hardly come in time.
	drainEndGrace = 2 * time.Second
	// drainPoll is how often a drain looks whether it is done.
	drainPoll = 20 * time.Millisecond
)

// ErrDrainTimeout is returned by Drain if requests were still in flight at its end and were cut
// off.
var ErrDrainTimeout = errors.New("requests were still in flight at the end of the drain timeout and were cut off")

// Drain ends the server in order. From now on every response ends its connection, no retry
// begins, and waits for one end at once. A request that waits for a permit at an upstream that is
// up is admitted when one is free, until shortly before the end. Clients in the accept queue are
// still taken, then the listeners close. Idle connections stay readable until no request came for
// a second. Upgraded connections go on until shortly before the end, then both their sides are
// told that nothing more comes. When DrainTimeout or ctx ends, whatever is left is cut off, and
// Drain returns ErrDrainTimeout. Serve returns afterwards.
func (s *Server) Drain(ctx context.Context) error {
	limit := s.settings.Load().DrainTimeout
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ending := s.Clock.Now().Add(limit - min(drainEndGrace, limit/4))
	s.WaitsEnd.Store(int64(s.Clock.Since(ending)))
	s.lastBusy.Store(int64(s.Clock.Elapsed()))
	s.Draining.Store(true)
	s.each(func(c *conn) {
		c.Wake(downstream.PhaseBackoff)
		c.http2.Load().goAway()
	})
	s.closeAfterQueue()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		if s.idleOnly() && s.quiet() {
			s.idleEnd.Store(true)
			s.each(func(c *conn) {
				c.Wake(downstream.PhaseIdle)
				c.http2.Load().goAway()
			})
			s.idle.Clear()
		}
		if ending.Before(s.Clock.Now()) {
			s.each(func(c *conn) {
				c.Wake(downstream.PhaseBackoff)
				c.x.EndTunnel()
			})
		}
		if s.empty() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.kill()
			return ErrDrainTimeout
		}
	}
}

// closeAfterQueue lets the accept loops take what is queued, then end.
func (s *Server) closeAfterQueue() {
	until := time.Now().Add(acceptGrace)
	for _, l := range s.listeners {
		if d, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok {
			_ = d.SetDeadline(until)
		} else {
			_ = l.Close()
		}
	}
	s.stopAccepting()
}

func (s *Server) empty() bool { return s.connections.Load() == 0 }

// closingIdle reports whether idle connections are to end.
func (s *Server) closingIdle() bool { return s.idleEnd.Load() }

func (s *Server) idleOnly() bool { return s.active.Load() == 0 }

func (s *Server) quiet() bool {
	return s.Clock.Elapsed()-time.Duration(s.lastBusy.Load()) >= drainQuietTime
}

func (s *Server) requestBegan() { s.active.Add(1) }

func (s *Server) requestEnded() {
	s.active.Add(-1)
	if s.Draining.Load() {
		s.lastBusy.Store(int64(s.Clock.Elapsed()))
	}
}
