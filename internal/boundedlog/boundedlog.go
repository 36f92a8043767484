// Package boundedlog bounds how many lines of one kind a log gets in a minute,
// and counts the others in a line of their own.
//
// zap's sampler does neither the sum nor its line, and one takes 448 KiB: there is a Limiter for each route.
package boundedlog

import (
	"slices"
	"sync"
	"time"
)

// Limiter lets the first lines of each minute through and counts the others. A
// minute begins with its first line. Safe for concurrent use.
type Limiter struct {
	perMinute    int
	onSuppressed func(suppressed int)

	mu         sync.Mutex // guards all below
	began      time.Time  // of the minute; zero: no line yet
	lines      int
	texts      []string // of these lines
	suppressed int
	timer      *time.Timer // calls Flush at the end of a minute with suppressed lines
}

// New returns a Limiter of that many lines a minute. onSuppressed writes the line that counts suppressed
// lines. It is called at the end of each minute that has any, and by Flush; never with 0.
func New(perMinute int, onSuppressed func(suppressed int)) *Limiter {
	return &Limiter{perMinute: perMinute, onSuppressed: onSuppressed}
}

// Allow reports whether a line may be written now. If not, it is counted.
func (b *Limiter) Allow() bool { return b.AllowOnce("") }

// AllowOnce is Allow for a line with that text, which may be written once a minute. The empty
// text may be written again.
func (b *Limiter) AllowOnce(text string) bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.began.IsZero() || now.Sub(b.began) >= time.Minute {
		b.began, b.lines, b.texts = now, 0, b.texts[:0]
	}
	if b.lines < b.perMinute && !slices.Contains(b.texts, text) {
		b.lines++
		if text != "" {
			b.texts = append(b.texts, text)
		}
		return true
	}
	if b.suppressed == 0 {
		b.arm(time.Minute - now.Sub(b.began))
	}
	b.suppressed++
	return false
}

// arm sets the timer. Called with mu held.
func (b *Limiter) arm(after time.Duration) {
	if b.timer == nil {
		b.timer = time.AfterFunc(after, b.Flush)
		return
	}
	b.timer.Reset(after)
}

// Flush counts the lines suppressed so far in a line of their own, if there are
// any. Whoever ends calls it, so that none goes untold.
func (b *Limiter) Flush() {
	b.mu.Lock()
	n := b.suppressed
	b.suppressed = 0
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	if n > 0 {
		b.onSuppressed(n)
	}
}
