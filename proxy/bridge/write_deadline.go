package bridge

import (
	"os"
	"sync"
	"time"
)

// writeDeadline bounds writes to a client's stream like the write deadline of a net.Conn: it ends a
// write that is blocked, and without one it does nothing. net/http's own is a timer that resets a
// stream even if nothing is being written. One goroutine writes; any may call set.
type writeDeadline struct {
	abort func() // ends the blocked write; it must not block

	mu      sync.Mutex // guards all fields below
	by      time.Time  // zero: no deadline
	writing bool
	timer   *time.Timer
}

// begin precedes a write, which end follows unless begin returns an error.
func (d *writeDeadline) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if expired(d.by) {
		return os.ErrDeadlineExceeded
	}
	d.writing = true
	return nil
}

func (d *writeDeadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writing = false
}

// set moves the deadline to t; the zero time means none.
func (d *writeDeadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by = t
	switch {
	case t.IsZero() && d.timer == nil:
	case t.IsZero():
		d.timer.Stop()
	case expired(t):
		d.check()
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(t), d.timeUp)
	default:
		d.timer.Reset(time.Until(t))
	}
}

func (d *writeDeadline) timeUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.check()
}

// check ends a write that is blocked beyond the deadline. It is called with mu held, so the write
// cannot return meanwhile.
func (d *writeDeadline) check() {
	if d.writing && expired(d.by) {
		d.abort()
	}
}
