package breaker

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/latency"
)

// counters holds what the fast paths of a Guard write without its lock: permits taken and
// released, and latencies. Guard.mu guards the fields after fresh.
type counters struct {
	mode   atomic.Uint32 // modeSlow, modeRecentFailures: when the fast paths need the lock
	tickAt atomic.Int64  // when the counters are next read
	_      [48]byte      // padding: every request writes the following fields

	// Permits taken and released since the start; the difference is the requests in flight.
	// They only grow, so each update is one atomic addition.
	acquired atomic.Int64
	_        [56]byte
	released atomic.Int64
	sending  atomic.Int64   // requests in flight that are not sent completely
	fresh    latency.Window // latencies of requests released on the fast path

	slowReleased  int64 // permits released other than by the fast path of Release
	slowResponded int64 // those with a response
	unsent        int64 // those that were never sent, or whose response cannot come
	abandoned     abandonedPermits
}

// Bits of counters.mode.
const (
	modeSlow           = 1 << iota // the breaker is not closed, a limit binds, or requests wait: every call takes the lock
	modeRecentFailures             // there were recent failures: Release takes the lock
)

// inFlight returns the number of permits taken. It is never too low.
func (c *counters) inFlight() int64 {
	left := c.released.Load() // read first: a permit taken in between is then counted, never missed
	return c.acquired.Load() - left
}

// awaited returns the number of permits taken, without abandoned ones. It requires Guard.mu.
func (c *counters) awaited() int64 { return c.inFlight() - c.abandoned.count() }

// awaitingResponse returns the number of requests in flight that the upstream can answer.
func (c *counters) awaitingResponse() int64 { return c.inFlight() - c.sending.Load() }

// addSending records that the request of p, just taken, is not complete.
func (c *counters) addSending(p Permit) Permit {
	c.sending.Add(1)
	p.kind = permitSending
	return p
}

// sentWhole records that the request of p was sent completely at the time at.
func (c *counters) sentWhole(p Permit, at time.Duration) Permit {
	if p.kind == permitSending {
		c.sending.Add(-1)
		p.kind, p.at = permitTaken, max(p.at, at)
	}
	return p
}

// releasedFast returns the number of permits released by the fast path.
func (c *counters) releasedFast() int64 { return c.released.Load() - c.slowReleased }

// responses and sent return the number of attempts answered and sent so far.
func (c *counters) responses() int64 { return c.releasedFast() + c.slowResponded }
func (c *counters) sent() int64      { return c.acquired.Load() - c.unsent - c.sending.Load() }

// neverAnswered counts an attempt as not sent, because its response cannot be received.
func (c *counters) neverAnswered() { c.unsent++ }

// release counts the end of an attempt and reports whether it had a permit. An abandoned
// permit is released by its age instead.
func (c *counters) release(p Permit, kind EndKind) bool {
	if p.kind == permitNone {
		return false
	}
	if p.kind != permitAbandoned {
		c.addReleased(1)
	}
	switch kind {
	case Responded:
		c.slowResponded++
	case Unsent, Connected:
		c.unsent++
	}
	return true
}

// releaseUnfinished counts the release of a permit whose request was not sent completely.
func (c *counters) releaseUnfinished(responded bool) {
	if responded {
		c.slowResponded++
	} else {
		c.unsent++
	}
	c.sending.Add(-1)
	c.addReleased(1)
}

// expireAbandoned releases abandoned permits that are too old; see abandonedPermits.
func (c *counters) expireAbandoned(now, period time.Duration) {
	if n := c.abandoned.expire(now, period); n > 0 {
		c.addReleased(n)
	}
}

// freeAbandoned releases all abandoned permits.
func (c *counters) freeAbandoned() { c.addReleased(c.abandoned.freeAll()) }

func (c *counters) addReleased(n int64) {
	c.slowReleased += n
	c.released.Add(n)
}

// waiting counts the requests in the caller's queue.
type waiting struct {
	all        int
	unfinished int // requests that have not arrived completely
}

// add adds n waiting requests like r; n may be negative.
func (w *waiting) add(n int, r Request) {
	w.all = max(0, w.all+n)
	if r.Unfinished {
		w.unfinished += n
	}
	w.unfinished = max(0, min(w.unfinished, w.all))
}

// any reports whether a request waits, anyWhole whether a complete one does.
func (w *waiting) any() bool      { return w.all > 0 }
func (w *waiting) anyWhole() bool { return w.all > w.unfinished }

// abandonedPermits counts the permits of attempts that no client waits for. Most of them
// end unheard, so their age frees them: after each period the older ones are freed, and the
// younger ones become the older ones. A permit counts for one to two periods.
type abandonedPermits struct {
	young, old int64
	began      time.Duration // when the period of the younger ones began
}

func (a *abandonedPermits) count() int64 { return a.young + a.old }

// add counts a permit abandoned at now.
func (a *abandonedPermits) add(now time.Duration) {
	if a.count() == 0 {
		a.began = now
	}
	a.young++
}

// expire frees the permits that are too old, and returns their number.
func (a *abandonedPermits) expire(now, period time.Duration) (freed int64) {
	for a.count() > 0 && now >= a.began+period {
		freed += a.old
		a.old, a.young = a.young, 0
		a.began += period
	}
	return freed
}

// freeAll frees every permit and returns their number.
func (a *abandonedPermits) freeAll() int64 {
	freed := a.count()
	a.young, a.old = 0, 0
	return freed
}

// nextEvent returns when expire has something to do, or Forever.
func (a *abandonedPermits) nextEvent(period time.Duration) time.Duration {
	if a.count() == 0 {
		return backoff.Forever
	}
	return a.began + period
}
