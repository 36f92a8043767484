package breaker

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// However often generations begin, and however long attempts take, each of them is counted, by when it was sent.
func TestGenerationsCountWhatIsInFlight(t *testing.T) {
	r := seeded(1)
	var c generations
	c.latest.Store(1<<32 - 50) // the numbers overflow
	var out []Permit
	left, ended := int64(0), int64(0)
	for now := time.Duration(1); now < 5000; now++ {
		switch k := r.IntN(10); {
		case k < 4 || len(out) == 0:
			out = append(out, Permit{at: now, generation: c.acquire()})
		case k < 7:
			i := r.IntN(1 + r.IntN(len(out))) // the older, the more often
			c.end(out[i])
			ended++
			out = append(out[:i], out[i+1:]...)
		case k < 8:
			c.abandon(out[len(out)-1])
			left++
			out = out[:len(out)-1]
		case len(out) < 200:
			c.begin(now)
		}
		if n := c.awaiting() - c.abandoned(); n != int64(len(out)) {
			t.Fatalf("at %d: %d in flight, counted %d", now, len(out), n)
		}
		if n := c.abandoned(); n > left {
			t.Fatalf("at %d: %d abandoned, counted %d", now, left, n)
		}
		for i := range c.ring {
			before := c.ring[i].began
			older := int64(0)
			for _, p := range out {
				if p.at < before {
					older++
				}
			}
			for i := range c.ring {
				if g := &c.ring[i]; g.began < before {
					older += g.left
				}
			}
			if n := c.older(before); n != older {
				t.Fatalf("at %d: %d were sent before %d, counted %d", now, older, before, n)
			}
		}
	}
	if n := c.answered(); n != ended || c.answered() != 0 {
		t.Errorf("%d ended without the lock, counted %d", ended, n)
	}
	c.free(5000, 0)
	if n := c.abandoned(); n != 0 {
		t.Errorf("%d abandoned attempts are not free", n)
	}
}

// An abandoned attempt counts from then on, whenever it was sent.
func TestAnAbandonedAttemptIsFreedByItsAge(t *testing.T) {
	var c generations
	p := Permit{generation: c.acquire()}
	c.begin(time.Second)
	c.abandon(p)
	if at := c.free(time.Minute, time.Minute); at != time.Minute+time.Second || c.abandoned() != 1 {
		t.Errorf("next at %v, %d abandoned", at, c.abandoned())
	}
	if at := c.free(time.Minute+time.Second, time.Minute); at != backoff.Forever || c.abandoned() != 0 {
		t.Errorf("next at %v, %d abandoned", at, c.abandoned())
	}
	c.abandon(Permit{generation: c.acquire()})
	for range numGenerations {
		c.begin(time.Second)
		c.acquire()
	}
	if c.abandoned() != 0 {
		t.Error("not freed by as many generations")
	}
}
