package upstream

import (
	"slices"
	"time"
)

// setTimer schedules the sweep after d. It requires mu.
func (p *Pool) setTimer(d time.Duration) {
	p.sweeping, p.sweepAfter = true, d
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.sweep)
		return
	}
	p.timer.Reset(d)
}

// sweepLater schedules the next sweep when every connection has been idle for three times as long,
// so that an idle process seldom wakes up, but no later than the oldest may be kept. It requires mu.
func (p *Pool) sweepLater() {
	now, oldest := p.now(), p.idle[0]
	youngest := now - p.idle[len(p.idle)-1].releasedAt
	p.setTimer(max(sweepPeriod, min(2*youngest, oldest.releasedAt+p.idleLimit(oldest)-now)))
}

// sweepSoon makes sure that a sweep runs within sweepPeriod, for a connection that has just
// become idle. A running sweep schedules the next one itself. It requires mu.
func (p *Pool) sweepSoon() {
	if !p.sweeping || p.sweepAfter > sweepPeriod && p.timer.Stop() {
		p.setTimer(sweepPeriod)
	}
}

// sweep closes the idle connections that are too old or closed by the upstream, and
// reschedules itself as long as some remain. So they do not hold descriptors until a request
// needs one.
func (p *Pool) sweep() {
	for i, more := 0, true; more; {
		var removed []*Conn
		i, more, removed = p.sweepSome(i)
		closeIdle(removed)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeping = false
	if len(p.idle) > 0 {
		p.sweepLater()
	}
}

// closeOldest closes the longest idle connection to free its descriptor, and reports
// whether there was one.
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
	c.closeSocket(false) // no close_notify, which could block
	return true
}

// sweepSome checks sweepStep connections from index i on and removes those to close. It
// returns the index to continue with. Meanwhile other calls only take from the end, or close
// the oldest; then one connection may be missed until the next sweep.
func (p *Pool) sweepSome(i int) (next int, more bool, removed []*Conn) {
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

// mustClose reports whether c must be closed, and records why. It skips the check of
// connections that became idle recently.
func (p *Pool) mustClose(c *Conn, now time.Duration) bool {
	idle := now - c.releasedAt
	if idle > p.idleLimit(c) {
		return true
	}
	if idle < sweepPeriod/2 {
		return false
	}
	f := c.checkIdle()
	if f != idleOpen {
		p.recordIdleState(f)
	}
	return f != idleOpen
}

// DefaultIdleAge is how long a connection is kept idle unless the upstream closes earlier: just
// under the 60 s after which load balancers commonly drop an idle connection.
const DefaultIdleAge = 55 * time.Second

// keepAliveLimit returns the idle age allowed for an announced timeout: one second less,
// for the request on its way, but at least half of it.
func keepAliveLimit(timeout time.Duration) time.Duration {
	return max(timeout-time.Second, timeout/2)
}
