package proxy

import (
	"context"
	"errors"
	"time"
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

// ErrDrainTimeout is Drain's error when requests were still in flight at its
// end and were cut off.
var ErrDrainTimeout = errors.New("requests were still in flight at the end of the drain timeout and were cut off")

// Drain ends the server in order: from now on every response ends its
// connection, no retry begins and waits for one end at once; who waits for a place
// at an upstream that is up is let in as places come free, until shortly before the end; clients in the
// accept queue are still taken, then the listeners close; idle connections
// stay readable until no request came for a second. Connections that were upgraded
// go on until shortly before the end, then both their sides are told that nothing more comes. Whatever is left when
// DrainTimeout or ctx ends is cut off, which is an ErrDrainTimeout. Serve
// returns afterwards.
func (s *Server) Drain(ctx context.Context) error {
	limit := s.settings.Load().DrainTimeout
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ending := s.now().Add(limit - min(drainEndGrace, limit/4))
	s.waitsEnd.Store(int64(s.since(ending)))
	s.lastBusy.Store(int64(s.elapsed()))
	s.draining.Store(true)
	s.each(func(c *conn) {
		c.wake(phaseBackoff)
		c.http2.Load().goAway()
	})
	s.closeAfterQueue()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		if s.idleOnly() && s.quiet() {
			s.idleEnd.Store(true)
			s.each(func(c *conn) {
				c.wake(phaseIdle)
				c.http2.Load().goAway()
			})
			s.lot.Clear()
		}
		if ending.Before(s.now()) {
			s.each(func(c *conn) {
				c.wake(phaseBackoff)
				c.tunnel.Load().end()
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

// endedByDrain says whether a drain ends the wait of w, which may be nil for one that
// is for no place. Who waits for one was accepted before and goes on waiting as
// long as its turn may come in time for a response, and its upstream is not down; but no retry
// is sent in a drain.
func (w *waiter) endedByDrain(s *Server) bool {
	if !s.draining.Load() {
		return false
	}
	if w == nil || w.c.x.retries > 0 || w.c.x.route.upstream.door.admitsOnlyProbes() {
		return true
	}
	end := time.Duration(s.waitsEnd.Load())
	return w.expectedAt > end || s.elapsed() >= end
}

// wake ends a wait of c by its deadline, if it waits in that phase.
func (c *conn) wake(phase int32) {
	if c.phase.Load() == phase {
		_ = c.wire.SetReadDeadline(past) // nc may just become TLS
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

// closingIdle says whether idle connections are to end.
func (s *Server) closingIdle() bool { return s.idleEnd.Load() }

func (s *Server) idleOnly() bool { return s.active.Load() == 0 }

func (s *Server) quiet() bool {
	return s.elapsed()-time.Duration(s.lastBusy.Load()) >= drainQuietTime
}

func (s *Server) requestBegan() { s.active.Add(1) }

func (s *Server) requestEnded() {
	s.active.Add(-1)
	if s.draining.Load() {
		s.lastBusy.Store(int64(s.elapsed()))
	}
}
