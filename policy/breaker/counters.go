package breaker

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// counters holds what the fast paths of a Guard write without its lock: the attempts in flight, and
// latencies.
type counters struct {
	mode        atomic.Uint32  // modeSlow, modeRecentFailures: when the fast paths need the lock
	tickAt      atomic.Int64   // when the counters are next read
	generations                // attempts whose request is sent completely
	sending     atomic.Int64   // other attempts in flight
	fresh       latency.Window // latencies of attempts released on the fast path
}

// Bits of counters.mode.
const (
	modeSlow           = 1 << iota // the window binds or requests wait: every call takes the lock
	modeRecentFailures             // there were recent failures: Release takes the lock
)

// inFlight returns the number of permits taken. It is never too low.
func (c *counters) inFlight() int64 {
	sending := c.sending.Load() // read first: what is sent completely in between counts twice, and is not missed
	return sending + c.awaiting()
}

// beginSending records that the request of p is not complete.
func (c *counters) beginSending(p Permit) Permit {
	if p.kind == permitTaken {
		c.sending.Add(1)
		c.of(p).sent.Add(-1)
		p.kind = permitSending
	}
	return p
}

// sentWhole records that the request of p was sent completely at the time at.
func (c *counters) sentWhole(p Permit, at time.Duration) Permit {
	if p.kind == permitSending {
		p.kind, p.at, p.generation = permitTaken, max(p.at, at), c.acquire()
		c.sending.Add(-1)
	}
	return p
}

// release counts the end of an attempt, with Guard.mu held. That of an abandoned one is its age.
func (c *counters) release(p Permit) {
	switch p.kind {
	case permitSending:
		c.sending.Add(-1)
	case permitTaken:
		c.end(p)
		c.settled++
	}
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
