package upstream

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/sock"
)

const (
	// lookedAtOnce is how many pooled connections one system call looks at: such a
	// call costs as much as a look at one, and a tenth of that for each (our measurement).
	lookedAtOnce = 16
	// lookLasts is how long after a look a connection may be taken by it, by the time that its taker
	// tells, which is past by as long as the taker waited for a processor. While
	// processors are busy sixteen connections are used within a third of it; the
	// upstream's answer, for which nothing guards the connection at all, takes as long
	// at least.
	lookLasts = time.Millisecond
)

// lookAhead looks at the connections that will be handed out next, all at once. What
// it finds open and quiet needs no look of its own for a moment. Called with mu held, which
// keeps them open.
func (p *Pool) lookAhead(now time.Duration) {
	next := p.idle[max(0, len(p.idle)-lookedAtOnce):]
	var all [lookedAtOnce]sock.Looked
	for i, c := range next {
		all[i].At(c.fd)
	}
	if !sock.Look(all[:len(next)]) {
		return
	}
	for i, c := range next {
		if all[i].Quiet() && c.fd >= 0 {
			c.lookedAt = now
		}
	}
}

// wasLookedAt says whether c, the next to be handed out, was looked at a moment ago, after
// it looked ahead where that is due. Called with mu held.
func (p *Pool) wasLookedAt(c *Conn, now time.Duration) bool {
	if c.fd < 0 {
		return false
	}
	if !c.lookIsFresh(now) && len(p.idle) > 1 {
		p.lookAhead(now)
	}
	return c.lookIsFresh(now)
}

// lookIsFresh says whether c was looked at since its last use, and just before now.
func (c *Conn) lookIsFresh(now time.Duration) bool {
	return c.lookedAt != 0 && now-c.lookedAt <= lookLasts
}
