package proxy

import (
	"math"
	"time"
)

// instant is a moment by the server's own monotonic clock, in nanoseconds; zero is
// no moment at all. It says what a time.Time says of the order of things, in a
// third of the room, and is moved and compared by one instruction, where that
// takes dozens, some 45 times for each request.
type instant int64

const (
	// start is when the server started: late enough for what lies a while before it.
	start = instant(24 * time.Hour)
	// longAgo is before all that happens: what is known of a deadline that may have been moved (past is one to set).
	longAgo = instant(1)
)

// Add moves it, to the end of all time at most.
func (t instant) Add(d time.Duration) instant {
	if d > 0 && t > math.MaxInt64-instant(d) {
		return math.MaxInt64
	}
	return t + instant(d)
}

// Sub is how long after u it is.
func (t instant) Sub(u instant) time.Duration { return time.Duration(t - u) }

// Before says whether it is earlier than u.
func (t instant) Before(u instant) bool { return t < u }

// IsZero says whether it is none.
func (t instant) IsZero() bool { return t == 0 }

// now looks at the clock. It does not follow the wall clock when that is set anew.
func (s *Server) now() instant { return start + instant(time.Since(s.started)) }

// clockStart is when an instant would have been zero, for other clocks to show the same.
func (s *Server) clockStart() time.Time { return s.started.Add(-time.Duration(start)) }

// since is how long after the server's start t is.
func (s *Server) since(t instant) time.Duration { return t.Sub(start) }

// elapsed is how long ago the server started.
func (s *Server) elapsed() time.Duration { return time.Since(s.started) }

// at is t for those who read clocks on walls, or set deadlines: zero where it is none.
func (s *Server) at(t instant) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return s.started.Add(s.since(t))
}

// unixNano is t in nanoseconds since 1970, by the wall clock as it was at the server's start.
func (s *Server) unixNano(t instant) int64 { return s.started.UnixNano() + int64(s.since(t)) }
