package upstream

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/sock"
)

const (
	// lookedAtOnce is how many pooled connections one system call looks at: such a
	// call costs as much as a look at one, and a tenth of that for each (our measurement).
	lookedAtOnce = 16
	// lookLasts is how long after a look a connection may be taken by it, by the time that its taker tells,
	// which may be some microseconds past. While
	// processors are busy sixteen connections are used within a third of it; the
	// upstream's answer, for which nothing guards the connection at all, takes as long
	// at least.
	lookLasts = time.Millisecond
	// lookedIdle is how long a connection may have been idle to be handed out before those that are released
	// after the look: it bounds how far the pool's order may be from that of release, so that
	// the surplus of a burst still grows old.
	lookedIdle = 20 * time.Millisecond
)

// next gives the place in idle of the connection to hand out: the last one released, but that a look made
// ahead is used up before another is due, and kept for those who go by it. Called with mu held.
func (p *Pool) next(ahead bool, now time.Duration) int {
	top := len(p.idle) - 1
	last := p.idle[top]
	if ahead {
		if top > 0 && last.fd >= 0 && !last.lookIsFresh(now) {
			p.lookAhead(now)
		}
		return top
	}
	if below := top - p.stillLooked(now); below >= 0 && p.idle[below].since >= last.lookedAt {
		return below // released after that look
	}
	return top
}

// lookAhead looks at the connections that will be handed out next, all at once. What
// it finds open and quiet needs no look of its own for a moment. Called with mu held, which
// keeps them open.
func (p *Pool) lookAhead(now time.Duration) {
	p.looked = 0
	next := p.idle[max(0, len(p.idle)-lookedAtOnce):]
	var all [lookedAtOnce]sock.Looked
	for i, c := range next {
		all[i].At(c.fd)
	}
	if !sock.Look(all[:len(next)]) {
		return
	}
	inTurn := true
	for i := len(next) - 1; i >= 0; i-- {
		c := next[i]
		quiet := all[i].Quiet() && c.fd >= 0
		if quiet {
			c.lookedAt = now
		}
		if inTurn = inTurn && quiet && now-c.since <= lookedIdle; inTurn {
			p.looked++
		}
	}
}

// stillLooked is how many of the last in idle are to be handed out by the latest look. Called with mu held.
func (p *Pool) stillLooked(now time.Duration) int {
	if p.looked > 0 && !p.idle[len(p.idle)-1].lookIsFresh(now) {
		p.looked = 0
	}
	return p.looked
}

// add puts c on top, but below what is still looked at. Called with mu held.
func (p *Pool) add(c *Conn, now time.Duration) {
	top := len(p.idle)
	at := top - p.stillLooked(now)
	p.idle = append(p.idle, c)
	p.idle[at], p.idle[top] = c, p.idle[at]
}

// remove takes what next gave the place of. Called with mu held.
func (p *Pool) remove(i int) {
	top := len(p.idle) - 1
	if i == top && p.looked > 0 {
		p.looked--
	}
	p.idle[i], p.idle[top] = p.idle[top], nil
	p.idle = p.idle[:top]
}

// lookIsFresh says whether c was looked at since its last use, and just before now.
func (c *Conn) lookIsFresh(now time.Duration) bool {
	return c.lookedAt != 0 && now-c.lookedAt <= lookLasts
}
