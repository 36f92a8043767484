package breaker

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// generations counts the attempts in flight by when they were sent. It is a ring: each generation holds
// what was sent from its beginning until the next one began, and the oldest one also what is left of those
// before it. So the number of attempts in flight that were sent before a time is a sum, and nobody else
// has to remember it.
//
// Guard.mu guards it, except for acquire and end, which add to one counter each. If the generation of a permit
// leaves the ring while end runs, its attempt is counted in a wrong one until that leaves the ring, too.
// The sum over all of them is right at any time.
type generations struct {
	latest  atomic.Uint32 // its number
	_       [64]byte      // padding: every request writes the following field
	ring    [numGenerations]generation
	settled int64 // attempts that ended with Guard.mu held, or were seen by answered
}

type generation struct {
	sent, ended atomic.Int64  // attempts; ended: abandoned ones, too
	left        int64         // attempts that were abandoned while it was the latest, and still count
	began       time.Duration // nothing in it was sent earlier
}

const (
	// A generation lasts for this part of the time after which a response is overdue. That is the precision
	// of all ages.
	generationsPerOverdue = 4
	// numGenerations is how long an abandoned attempt counts.
	numGenerations = 32
)

// waited returns the number of attempts in flight that were not abandoned, inFlight of all. They are never too low.
func (g *generation) waited() int64 {
	ended := g.ended.Load()
	return g.sent.Load() - ended
}
func (g *generation) inFlight() int64 { return g.waited() + g.left }

func (c *generations) at(number uint32) *generation { return &c.ring[number%numGenerations] }
func (c *generations) now() *generation             { return c.at(c.latest.Load()) }

// of returns the generation of a permit, or the oldest one.
func (c *generations) of(p Permit) *generation {
	if latest := c.latest.Load(); latest-p.generation >= numGenerations {
		return c.at(latest + 1)
	}
	return c.at(p.generation)
}

// acquire counts an attempt that is sent now, and returns the number of its generation; end counts its end.
func (c *generations) acquire() uint32 {
	i := c.latest.Load()
	c.at(i).sent.Add(1)
	return i
}
func (c *generations) end(p Permit) { c.of(p).ended.Add(1) }

// abandon records that no client waits for the attempt of p. Most of them end unheard, so it counts until it
// is old, and as if it was sent now.
func (c *generations) abandon(p Permit) {
	c.end(p)
	c.settled++
	c.now().left++
}

// begin begins a generation, unless the latest one is empty. The oldest one joins the next one.
func (c *generations) begin(now time.Duration) {
	g := c.now()
	if g.inFlight() > 0 {
		i := c.latest.Load() + 1
		next := c.at(i + 1)
		g = c.at(i)
		next.sent.Add(g.sent.Swap(0))
		next.ended.Add(g.ended.Swap(0))
		next.began, g.left = g.began, 0
		c.latest.Store(i)
	}
	g.began = now
}

// first returns the number of the first generation that did not end by t.
func (c *generations) first(t time.Duration) uint32 {
	i := c.latest.Load() - numGenerations + 1
	for i != c.latest.Load() && c.at(i+1).began <= t {
		i++
	}
	return i
}

// older returns the number of attempts in flight that were sent before t, at least; endedSince returns the
// number of attempts sent since t that have ended, at most.
func (c *generations) older(t time.Duration) (n int64) {
	for i, end := c.latest.Load()-numGenerations+1, c.first(t); i != end; i++ {
		n += c.at(i).inFlight()
	}
	return n
}
func (c *generations) endedSince(t time.Duration) (n int64) {
	for i := c.first(t); i != c.latest.Load()+1; i++ {
		n += c.at(i).ended.Load()
	}
	return n
}

// awaiting returns the number of attempts in flight that the upstream can answer, abandoned how many of them
// were abandoned, waited how many were not.
func (c *generations) awaiting() (n int64) {
	for i := range c.ring {
		n += c.ring[i].inFlight()
	}
	return n
}
func (c *generations) waited() (n int64) {
	for i := range c.ring {
		n += c.ring[i].waited()
	}
	return n
}
func (c *generations) abandoned() (n int64) {
	for i := range c.ring {
		n += c.ring[i].left
	}
	return n
}

// answered returns the number of attempts that ended without Guard.mu, which were answered, since the last call.
func (c *generations) answered() int64 {
	n := -c.settled
	for i := range c.ring {
		n += c.ring[i].ended.Load()
	}
	c.settled += n
	return n
}

// free forgets attempts that were abandoned that long ago. It returns when to call it again, or Forever.
func (c *generations) free(now, long time.Duration) time.Duration {
	at := backoff.Forever
	for i := range c.ring {
		if g := &c.ring[i]; g.began+long <= now {
			g.left = 0
		} else if g.left > 0 {
			at = min(at, g.began+long)
		}
	}
	return at
}
