package downstream

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// SetRead moves the read deadline to t, or at most slack later. So the deadline rarely moves:
// moving a timer costs more than reading a clock.
func (c *Conn) SetRead(t clock.Instant, slack time.Duration) {
	if d := c.readAt.Sub(t); d >= 0 && d <= slack {
		return
	}
	c.readAt = t.Add(slack)
	_ = c.NC.SetReadDeadline(c.clock.At(c.readAt))
}

// ResetRead sets the read deadline to t, also if somebody may have moved it.
func (c *Conn) ResetRead(t clock.Instant) {
	c.readAt = t
	_ = c.NC.SetReadDeadline(c.clock.At(t))
}

// LimitRead sets the read deadline to within from now, for a read that the caller is about to do.
func (c *Conn) LimitRead(within time.Duration) {
	_ = c.NC.SetReadDeadline(time.Now().Add(within))
	c.readAt = clock.LongAgo
}

// ClearRead removes the read deadline.
func (c *Conn) ClearRead() {
	_ = c.NC.SetReadDeadline(time.Time{})
	c.readAt = clock.LongAgo
}

// ForgetDeadlines says that somebody removed both deadlines from the connection.
func (c *Conn) ForgetDeadlines() { c.readAt, c.writeAt = 0, 0 }

// ReadMoved says that somebody, such as who woke the connection, may have moved the read deadline. The
// next SetRead sets it in any case.
func (c *Conn) ReadMoved() { c.readAt = clock.LongAgo }

// MayHaveMoved reports whether ReadMoved was called since the read deadline was set.
func (c *Conn) MayHaveMoved() bool { return c.readAt == clock.LongAgo }

// WokenEarly reports whether a read that timed out did so before its deadline, because somebody moved
// it.
func (c *Conn) WokenEarly() bool {
	if !c.clock.Now().Before(c.readAt) {
		return false
	}
	c.ReadMoved()
	return true
}

// BeginWrite notes that a write to the client begins, for WritingSince.
func (c *Conn) BeginWrite(now clock.Instant) { c.writing.Store(int64(now)) }

// EndWrite notes that it ended.
func (c *Conn) EndWrite() { c.writing.Store(0) }

// WritingSince returns when the write in flight began; zero if there is none. It is safe for concurrent
// use.
func (c *Conn) WritingSince() clock.Instant { return clock.Instant(c.writing.Load()) }

// Write sends all of p, within the deadline for a client that reads nothing.
func (c *Conn) Write(p []byte, now clock.Instant) error {
	c.ExtendWrite(now)
	c.BeginWrite(now)
	_, err := c.NC.Write(p)
	c.EndWrite()
	return err
}

// WriteBoth is like Write for p followed by q.
func (c *Conn) WriteBoth(p, q []byte, now clock.Instant) error {
	c.ExtendWrite(now)
	c.BeginWrite(now)
	_, err := rawsocket.WriteBoth(c.NC, p, q)
	c.EndWrite()
	return err
}

// ExtendWrite keeps the write deadline between one and two write timeouts away.
func (c *Conn) ExtendWrite(now clock.Instant) {
	timeout := c.writeTimeout
	if timeout <= 0 {
		return
	}
	if c.writeAt.Sub(now) >= timeout {
		return
	}
	c.writeAt = now.Add(2 * timeout)
	_ = c.NC.SetWriteDeadline(c.clock.At(c.writeAt))
}

// WriteTimedOut reports whether the write deadline has passed.
func (c *Conn) WriteTimedOut() bool {
	return !c.writeAt.IsZero() && !c.clock.Now().Before(c.writeAt)
}
