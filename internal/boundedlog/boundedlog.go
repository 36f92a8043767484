// Package boundedlog limits how many lines of one kind are logged per minute, and reports the
// number of suppressed ones.
package boundedlog

import (
	"sync"
	"time"
)

// Limiter allows the first lines of each minute and counts the others. A minute begins with its
// first line. It is safe for concurrent use; set its fields before use and do not change them.
type Limiter struct {
	PerMinute int
	// OnSuppressed logs the number of suppressed lines. It is called at the end of each minute with
	// suppressed lines, and by Flush; never with 0.
	OnSuppressed func(suppressed int)

	mu         sync.Mutex // guards all below
	began      time.Time  // start of the minute; zero: no line yet
	lines      int
	suppressed int
	timer      *time.Timer // calls Flush at the end of a minute with suppressed lines
}

// Allow reports whether a line may be written now. Otherwise it counts the line.
func (b *Limiter) Allow() bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.began.IsZero() || now.Sub(b.began) >= time.Minute {
		b.began, b.lines = now, 0
	}
	if b.lines < b.PerMinute {
		b.lines++
		return true
	}
	if b.suppressed == 0 {
		b.arm(time.Minute - now.Sub(b.began))
	}
	b.suppressed++
	return false
}

// arm sets the timer. It requires mu.
func (b *Limiter) arm(after time.Duration) {
	if b.timer == nil {
		b.timer = time.AfterFunc(after, b.Flush)
		return
	}
	b.timer.Reset(after)
}

// Flush reports the lines suppressed so far, if there are any. Call it at the end, so that none is
// lost.
func (b *Limiter) Flush() {
	b.mu.Lock()
	n := b.suppressed
	b.suppressed = 0
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	if n > 0 {
		b.OnSuppressed(n)
	}
}
