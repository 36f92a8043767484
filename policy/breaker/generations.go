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

func (g *generations) at(number uint32) *generation { return &g.ring[number%numGenerations] }
func (g *generations) now() *generation             { return g.at(g.latest.Load()) }

// of returns the generation of a permit, or the oldest one.
func (g *generations) of(p Permit) *generation {
	if latest := g.latest.Load(); latest-p.generation >= numGenerations {
		return g.at(latest + 1)
	}
	return g.at(p.generation)
}

// acquire counts an attempt that is sent now, and returns the number of its generation; end counts its end.
func (g *generations) acquire() uint32 {
	i := g.latest.Load()
	g.at(i).sent.Add(1)
	return i
}
func (g *generations) end(p Permit) { g.of(p).ended.Add(1) }

// abandon records that no client waits for the attempt of p. Most of them end unheard, so it counts until it
// is old, and as if it was sent now.
func (g *generations) abandon(p Permit) {
	g.end(p)
	g.settled++
	g.now().left++
}

// begin begins a generation, unless the latest one is empty. The oldest one joins the next one.
func (g *generations) begin(now time.Duration) {
	gen := g.now()
	if gen.inFlight() > 0 {
		i := g.latest.Load() + 1
		next := g.at(i + 1)
		gen = g.at(i)
		next.sent.Add(gen.sent.Swap(0))
		next.ended.Add(gen.ended.Swap(0))
		next.began, gen.left = gen.began, 0
		g.latest.Store(i)
	}
	gen.began = now
}

// first returns the number of the first generation that did not end by t.
func (g *generations) first(t time.Duration) uint32 {
	i := g.latest.Load() - numGenerations + 1
	for i != g.latest.Load() && g.at(i+1).began <= t {
		i++
	}
	return i
}

// older returns the number of attempts in flight that were sent before t, at least; endedSince returns the
// number of attempts sent since t that have ended, at most.
func (g *generations) older(t time.Duration) (n int64) {
	for i, end := g.latest.Load()-numGenerations+1, g.first(t); i != end; i++ {
		n += g.at(i).inFlight()
	}
	return n
}
func (g *generations) endedSince(t time.Duration) (n int64) {
	for i := g.first(t); i != g.latest.Load()+1; i++ {
		n += g.at(i).ended.Load()
	}
	return n
}

// awaiting returns the number of attempts in flight that the upstream can answer, abandoned how many of them
// were abandoned, waited how many were not.
func (g *generations) awaiting() (n int64) {
	for i := range g.ring {
		n += g.ring[i].inFlight()
	}
	return n
}
func (g *generations) waited() (n int64) {
	for i := range g.ring {
		n += g.ring[i].waited()
	}
	return n
}
func (g *generations) abandoned() (n int64) {
	for i := range g.ring {
		n += g.ring[i].left
	}
	return n
}

// answered returns the number of attempts that ended without Guard.mu, which were answered, since the last call.
func (g *generations) answered() int64 {
	n := -g.settled
	for i := range g.ring {
		n += g.ring[i].ended.Load()
	}
	g.settled += n
	return n
}

// free forgets attempts that were abandoned that long ago. It returns when to call it again, or Forever.
func (g *generations) free(now, long time.Duration) time.Duration {
	at := backoff.Forever
	for i := range g.ring {
		if gen := &g.ring[i]; gen.began+long <= now {
			gen.left = 0
		} else if gen.left > 0 {
			at = min(at, gen.began+long)
		}
	}
	return at
}
