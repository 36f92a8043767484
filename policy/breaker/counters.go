package breaker

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// counters holds what the fast paths of a Guard write without its lock: permits taken and
// released, and latencies. Guard.mu guards the fields after fresh.
type counters struct {
	mode   atomic.Uint32 // modeSlow, modeRecentFailures: when the fast paths need the lock
	tickAt atomic.Int64  // when the counters are next read
	_      [48]byte      // padding: every request writes the following fields

	// Permits taken and released since the start; the difference is the attempts in flight.
	// They only grow, so each update is one atomic addition.
	acquired atomic.Int64
	_        [56]byte
	released atomic.Int64
	sending  atomic.Int64   // attempts in flight whose request is not sent completely
	fresh    latency.Window // latencies of attempts released on the fast path

	unheard   int64 // permits released without a response
	unsent    int64 // those that were never sent, or whose client left early
	abandoned abandoned
}

// Bits of counters.mode.
const (
	modeSlow           = 1 << iota // the window binds or requests wait: every call takes the lock
	modeRecentFailures             // there were recent failures: Release takes the lock
)

// inFlight returns the number of permits taken. It is never too low.
func (c *counters) inFlight() int64 {
	left := c.released.Load() // read first: a permit taken in between is then counted, never missed
	return c.acquired.Load() - left
}

// awaiting returns the number of attempts in flight that the upstream can answer.
func (c *counters) awaiting() int64 { return c.inFlight() - c.sending.Load() }

// responses and sent return the number of attempts answered and sent so far.
func (c *counters) responses() int64 { return c.released.Load() - c.unheard }
func (c *counters) sent() int64      { return c.acquired.Load() - c.unsent - c.sending.Load() }

// sentWhole records that the request of p was sent completely at the time at.
func (c *counters) sentWhole(p Permit, at time.Duration) Permit {
	if p.kind == permitSending {
		c.sending.Add(-1)
		p.kind, p.at = permitTaken, max(p.at, at)
	}
	return p
}

// mark is the number of requests sent until a time.
type mark struct {
	at   time.Duration
	sent int64
}

// mark returns the mark of now.
func (c *counters) mark(now time.Duration) mark { return mark{now, c.sent()} }

// older returns how many attempts in flight were sent before m, at least.
func (c *counters) older(m mark) int64 { return c.awaiting() - (c.sent() - m.sent) }

// release counts the end of an attempt. The permit of an abandoned one is freed by its age.
func (c *counters) release(p Permit, kind EndKind) {
	switch {
	case kind == Responded:
		c.unheard--
	case kind == Unsent || kind == Connected || p.kind == permitSending:
		c.unsent++
	}
	if p.kind == permitSending {
		c.sending.Add(-1)
	}
	if p.kind != permitAbandoned {
		c.free(1)
	}
}

func (c *counters) free(n int64) {
	c.unheard += n
	c.released.Add(n)
}

// abandoned counts the permits of attempts that no client waits for. Most of them end
// unheard, so their age frees them: after each period the older ones are freed, and the
// younger ones become the older ones. A permit counts for one to two periods.
type abandoned struct {
	young, old int64
	began      time.Duration // when the period of the younger ones began
}

func (a *abandoned) count() int64 { return a.young + a.old }

func (a *abandoned) add(now time.Duration) {
	if a.count() == 0 {
		a.began = now
	}
	a.young++
}

// expire returns the number of permits that are too old.
func (a *abandoned) expire(now, period time.Duration) (freed int64) {
	for a.count() > 0 && now >= a.began+period {
		freed += a.old
		a.old, a.young = a.young, 0
		a.began += period
	}
	return freed
}

// waiting counts the requests in the caller's queue.
type waiting struct {
	all        int
	unfinished int  // requests that have not arrived completely
	noneFits   bool // Next found none of them, and nothing has changed since
}

// add adds n waiting requests like r; n may be negative.
func (w *waiting) add(n int, r Request) {
	w.all = max(0, w.all+n)
	if r.Unfinished {
		w.unfinished += n
	}
	w.unfinished = max(0, min(w.unfinished, w.all))
	w.noneFits = false
}

// any reports whether a request waits, anyWhole whether a complete one does.
func (w *waiting) any() bool      { return w.all > 0 }
func (w *waiting) anyWhole() bool { return w.all > w.unfinished }
