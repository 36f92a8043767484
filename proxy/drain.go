package proxy

import (
	"context"
	"errors"
	"time"
)

const (
	// acceptTail is how long callers that are already in the system's queue
	// are still taken after a drain begins to close the listeners.
	acceptTail = 50 * time.Millisecond
	// quietTime is how long no request may have come before the connections
	// that only idle are closed: a caller about to use one has done so by then.
	quietTime = time.Second
	// drainPoll is how often a drain looks whether it is done.
	drainPoll = 20 * time.Millisecond
)

// ErrDrainTimeout is Drain's error when requests were still under way at its
// end and were cut off.
var ErrDrainTimeout = errors.New("requests were still under way at the end of the drain timeout and were cut off")

// Drain ends the server in order: from now on every response ends its
// connection, no retry begins and waits for one end at once; callers in the
// accept queue are still taken, then the listeners close; idle connections
// stay readable until no request came for a second. Whatever is left when
// DrainTimeout or ctx ends is cut off, which is an ErrDrainTimeout. Serve
// returns afterwards.
func (s *Server) Drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.settings.Load().DrainTimeout)
	defer cancel()
	s.lastBusy.Store(int64(s.since(time.Now())))
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

// wake ends a wait of c by its deadline, if it waits in that phase.
func (c *conn) wake(phase int32) {
	if c.phase.Load() == phase {
		_ = c.nc.SetReadDeadline(past)
	}
}

// closeAfterQueue lets the accept loops take what is queued, then end.
func (s *Server) closeAfterQueue() {
	until := time.Now().Add(acceptTail)
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
	return s.since(time.Now())-time.Duration(s.lastBusy.Load()) >= quietTime
}

func (s *Server) requestBegan() { s.active.Add(1) }

func (s *Server) requestEnded() {
	s.active.Add(-1)
	if s.draining.Load() {
		s.lastBusy.Store(int64(s.since(time.Now())))
	}
}
