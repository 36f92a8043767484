package upstream

import (
	"slices"
	"time"
)

// setTimer has the sweep run once after d. Called with mu held.
func (p *Pool) setTimer(d time.Duration) {
	p.sweeping, p.sweepAfter = true, d
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.sweep)
		return
	}
	p.timer.Reset(d)
}

// sweepLater has the next sweep run after an eighth of the time for which every connection has been idle, and at least
// sweepPeriod, so that a process at rest is seldom woken. Called with mu held.
func (p *Pool) sweepLater() {
	youngest := p.now() - p.idle[len(p.idle)-1].releasedAt
	p.setTimer(max(sweepPeriod, youngest/8))
}

// sweepSoon has a sweep run within sweepPeriod, for a connection that has just become idle. One that runs now sees to
// that itself. Called with mu held.
func (p *Pool) sweepSoon() {
	if !p.sweeping || p.sweepAfter > sweepPeriod && p.timer.Stop() {
		p.setTimer(sweepPeriod)
	}
}

// sweep closes the idle connections that are too old or that the upstream
// closed, and comes again as long as some stay. It frees descriptors, and
// seeing a close soon after it happened is what lets the pool learn its age.
func (p *Pool) sweep() {
	began := p.now()
	var removed []*Conn
	for i, more := 0, true; more; {
		i, more, removed = p.sweepSome(i, removed[:0])
		for _, c := range removed {
			_ = c.Conn.Close()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeping, p.sweptAt = false, began
	if len(p.idle) > 0 {
		p.sweepLater()
	}
}

// closeOldest closes the connection that is idle for longest, for its descriptor; no when
// there is none.
func (p *Pool) closeOldest() bool {
	p.mu.Lock()
	if len(p.idle) == 0 {
		p.mu.Unlock()
		return false
	}
	c := p.idle[0]
	p.idle = slices.Delete(p.idle, 0, 1)
	c.state = connClosed
	p.mu.Unlock()
	c.shut(false) // without a word over TLS, which could wait
	return true
}

// sweepSome looks at sweepStep connections from index i on and moves the bad
// ones from the pool to gone. It gives the index to go on with. Others only
// take from the pool's end meanwhile, or the oldest for its descriptor; then one
// may be missed until the next sweep.
func (p *Pool) sweepSome(i int, removed []*Conn) (next int, more bool, _ []*Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	kept := min(i, len(p.idle))
	end := min(i+sweepStep, len(p.idle))
	for _, c := range p.idle[kept:end] {
		if p.mustClose(c, now) {
			c.state = connClosed
			removed = append(removed, c)
			continue
		}
		p.idle[kept] = c
		kept++
	}
	p.idle = slices.Delete(p.idle, kept, end)
	return kept, kept < len(p.idle), removed
}

// mustClose reports whether c must go, and takes note why. Those idle for less
// than the sweep's own period are left to the next one.
func (p *Pool) mustClose(c *Conn, now time.Duration) bool {
	idle := now - c.releasedAt
	if idle > p.idleLimit(c, now) {
		return true
	}
	if idle < sweepPeriod/2 {
		return false
	}
	f := c.checkIdle()
	if f != idleOpen {
		seenOpen := max(0, p.sweptAt-c.releasedAt) // its age at the last look
		p.recordIdleState(f, min(idle, seenOpen+sweepPeriod))
	}
	return f != idleOpen
}
