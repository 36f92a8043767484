// Package clock is the one clock of a server: monotonic, and cheap to read and compare.
package clock

import (
	"context"
	"math"
	"time"
)

// Instant is a point in time on a server's monotonic clock, in nanoseconds. The zero value means
// none. It takes a third of the memory of a time.Time, and adding or comparing it is one
// instruction instead of dozens. A request does so about 45 times.
type Instant int64

const (
	// Start is when the server started. It leaves room for earlier instants.
	Start = Instant(24 * time.Hour)
	// LongAgo is earlier than every event. It marks a deadline that another goroutine may
	// have moved.
	LongAgo = Instant(1)
)

// Add returns t+d, or the last instant if that overflows.
func (t Instant) Add(d time.Duration) Instant {
	if d > 0 && t > math.MaxInt64-Instant(d) {
		return math.MaxInt64
	}
	return t + Instant(d)
}

// Sub returns t-u.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Before reports whether t is earlier than u.
func (t Instant) Before(u Instant) bool { return t < u }

// Earliest returns the earlier of two deadlines. A zero a means never.
func Earliest(a, b Instant) Instant {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// IsZero reports whether t is the zero Instant.
func (t Instant) IsZero() bool { return t == 0 }

// Clock is the clock of one server. It is safe for concurrent use.
type Clock struct {
	started time.Time
}

// New returns a clock that starts now.
func New() *Clock { return &Clock{time.Now()} }

// Now reads the clock. It does not follow steps of the wall clock.
func (k *Clock) Now() Instant { return Start + Instant(time.Since(k.started)) }

// Epoch returns the time of instant zero, so that other clocks can use the same origin.
func (k *Clock) Epoch() time.Time { return k.started.Add(-time.Duration(Start)) }

// Since returns the time from the server's start to t.
func (k *Clock) Since(t Instant) time.Duration { return t.Sub(Start) }

// Elapsed returns the time since the server's start.
func (k *Clock) Elapsed() time.Duration { return time.Since(k.started) }

// At converts t to a time.Time, for deadlines. The zero instant becomes the zero time.
func (k *Clock) At(t Instant) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return k.started.Add(k.Since(t))
}

// Context returns a context that ends at t; zero means never.
func (k *Clock) Context(t Instant) (context.Context, context.CancelFunc) {
	if t.IsZero() {
		return context.WithCancel(context.Background())
	}
	return context.WithDeadline(context.Background(), k.At(t))
}

// UnixNano converts t to Unix time in nanoseconds, by the wall clock at the server's start.
func (k *Clock) UnixNano(t Instant) int64 { return k.started.UnixNano() + int64(k.Since(t)) }
