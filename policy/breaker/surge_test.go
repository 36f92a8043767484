package breaker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// crowd is the clients of an upstream that answers after 5 ms: one client's requests, each for another URL, with
// 503, and those of the others, for forty URLs, with 200. Requests wait for up to 10 s.
type crowd struct {
	*guardHarness
	random *rand.Rand
	bad    uint32
	waits  []crowded
	flight []crowded
}

type crowded struct {
	p   Permit
	key uint32
	at  time.Duration
}

const firstBadKey = 1_000_001

// Pick implements Line: the newest first. The request that it returns is the first one of flight.
func (c *crowd) Pick(fits func(Request) bool) (r Request, ok bool) {
	for i := len(c.waits) - 1; i >= 0; i-- {
		if r = (Request{Key: c.waits[i].key}); fits(r) {
			c.waits = slices.Delete(c.waits, i, i+1)
			return r, true
		}
	}
	return r, false
}

// next lets those in who may pass.
func (c *crowd) next() {
	for {
		before := slices.Clone(c.waits)
		p, v := c.g.Next(c.now, c)
		if v > VerdictProbe {
			return
		}
		i := 0
		for i < len(c.waits) && c.waits[i] == before[i] {
			i++
		}
		c.send(p, before[i].key)
	}
}

func (c *crowd) send(p Permit, key uint32) {
	c.flight = append(c.flight, crowded{p, key, c.now + 5*time.Millisecond})
}

func (c *crowd) ask(key uint32) {
	p, v := c.g.Acquire(c.now, Request{Key: key})
	if v <= VerdictProbe {
		c.send(p, key)
		return
	}
	c.waits = append(c.waits, crowded{key: key, at: c.now + 10*time.Second})
	c.next()
}

// run sends good and bad requests at these rates per second, and returns how many good ones were served, and for how
// long the breaker was open.
func (c *crowd) run(d time.Duration, good, bad int) (served int, open time.Duration) {
	goods, bads := 0, 0
	for end := c.now + d; c.now < end; c.now += time.Millisecond {
		for len(c.flight) > 0 && c.flight[0].at <= c.now {
			a := c.flight[0]
			c.flight = c.flight[1:]
			e := AttemptEnd{Kind: Responded, Status: 200, Key: a.key, Client: a.key}
			if a.key >= firstBadKey {
				e.Status, e.Client = 503, 1
			} else {
				served++
			}
			c.g.Release(a.p, c.now, e)
			c.next()
		}
		if c.g.NextEvent() <= c.now {
			c.g.Expire(c.now)
			c.next()
		}
		for len(c.waits) > 0 && c.waits[0].at <= c.now {
			c.g.CancelWait(c.now, Request{Key: c.waits[0].key})
			c.waits = c.waits[1:]
		}
		for goods += good; goods >= 1000; goods -= 1000 {
			c.ask(c.random.Uint32N(40)*2 + 1)
		}
		for bads += bad; bads >= 1000; bads -= 1000 {
			c.ask(firstBadKey + c.bad)
			c.bad += 2
		}
		if s := c.g.State().Breaker; s == Open || s == HalfOpen {
			open += time.Millisecond
		}
	}
	return served, open
}

// One client that sends nothing but failing requests may look like an outage just after a surge, when far more good
// responses are usual than come. That does not last: what is usual is forgotten within some seconds, and in slow start
// it is learnt anew, also while the window binds. Otherwise the breaker opens again and again, and never learns.
func TestAfterASurgeOneClientDoesNotStopTheOthers(t *testing.T) {
	for seed := range uint64(3) {
		for _, quiet := range []time.Duration{0, 40 * time.Second} {
			c := &crowd{guardHarness: newGuardHarness(t, Options{}), random: seeded(seed)}
			c.run(20*time.Second, 1000, 0)
			c.run(quiet, 10, 0)
			if _, open := c.run(30*time.Second, 10, 150); quiet > 0 && open > 0 {
				t.Errorf("seed %d: %v after the surge one client opened the breaker, for %v in half a minute", seed, quiet, open)
			}
			if served, open := c.run(30*time.Second, 10, 150); served < 295 || open > 0 {
				t.Errorf("seed %d, from half a minute after one client began to fail, %v after the surge: %d of 300 requests of others were served, the breaker was open for %v", seed, quiet, served, open)
			}
		}
	}
}
