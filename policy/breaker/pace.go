package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// pace is the trickle of a window that is shut: one probe at a time, and the wait before the
// next one.
type pace struct {
	impatient bool          // clients left late in the silence that shut it
	why       OpenedBy      // the evidence that shut the window last
	next      time.Duration // when another probe is due: after a wait, or once the one in flight counts as hung; 0: now
	wait      time.Duration // the last time between two probes: a wait, or twice as long as the last one that hung

	probe  uint16        // number of the latest probe; it is odd while it is in flight
	failed int           // probes that failed since the last proof
	since  time.Duration // when the first wait after it began

	opened                     [numOpenedBy]uint64
	slowStarts, probes, resets uint64
}

// rhythm holds the waits between probes after one kind of evidence, as pairs of first and
// longest. Each is doubled from probe to probe and jittered to U[1/2, 1], which spreads pods
// that lost the same upstream at the same instant.
type rhythm struct{ fail, failMax, hang, hangMax time.Duration }

// rhythms are short where a probe is cheap compared with an outage that lasts longer than
// needed.
//
// A refused dial costs nothing: at 150 ms, a request is served within 250 ms of the port
// being open. A dial that hangs may go to a server that has left a Service of several, so
// another one is tried beside it. A failing upstream is not silent, so its recovery does not
// wait for one response.
//
// A silent upstream has every probe to work off after its recovery, and fifty proxies send
// fifty. Their connections are read on, and the late response to any of them ends the
// silence, so another probe is only needed if all of them were lost.
var rhythms = [numOpenedBy]rhythm{
	OpenedByRefused: {25 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond, 5 * time.Second},
	OpenedByLost:    {25 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond, 5 * time.Second},
	OpenedByDial:    {100 * time.Millisecond, 500 * time.Millisecond, 250 * time.Millisecond, 30 * time.Second},
	OpenedByFailing: {100 * time.Millisecond, 250 * time.Millisecond, 250 * time.Millisecond, 30 * time.Second},
	OpenedByStall:   {500 * time.Millisecond, 5 * time.Second, ProbeCounts, ProbeCounts},
}

// ProbeCounts is how long the late response to a probe is worth waiting for: longer than most outages.
const ProbeCounts = time.Minute

// leastWait replaces a shorter wait of Options.Backoff, such as 0: in this time the request that
// failed is back at its place in the queue, so that it is the next probe.
const leastWait = time.Millisecond

// shut begins the trickle. After a silence the last request that passed in doubt is the probe.
// Without one, and after a loss, a probe is due at once: a false alarm then delays only the
// requests that arrive while it is in flight.
func (c *pace) shut(now time.Duration, why OpenedBy, o *Options) {
	c.why = why
	if why == OpenedByStall && c.probing() && !o.ActiveProbe {
		c.probes++
		c.next = now + c.patience(o)
		return
	}
	if c.failed == 0 {
		c.since = now
	}
	c.waitFor(now, o)
	if why == OpenedByStall || why == OpenedByLost && c.failed == 0 {
		c.discard()
	}
}

// probing reports whether a probe is in flight, due whether one may be sent.
func (c *pace) probing() bool { return c.probe%2 == 1 }
func (c *pace) due() bool     { return !c.probing() && c.next == 0 }

// waitFor sets the wait before the next probe. None is in flight.
func (c *pace) waitFor(now time.Duration, o *Options) {
	if o.Backoff != nil {
		c.wait = max(leastWait, o.Backoff.Wait(backoff.Step{Retry: c.failed, Previous: c.wait, Elapsed: now - c.since}, o.Rand))
	} else {
		r := &rhythms[c.why]
		c.wait = equalJitter(backoff.Grow(r.fail, r.failMax, 2, c.failed), o.Rand)
	}
	c.discard()
	c.next = now + c.wait
}

// equalJitter returns a duration uniform in [d/2, d].
func equalJitter(d time.Duration, r backoff.Rand) time.Duration { return d/2 + backoff.UpTo(r, d/2) }

// expire makes the probe due when its time has come, and gives up a hung one.
func (c *pace) expire(now time.Duration, o *Options) {
	if c.next == 0 || now < c.next {
		return
	}
	if c.probing() {
		c.wait = 2 * c.hangs(o)
	}
	c.discard()
}

// begin starts a probe, and returns its number.
func (c *pace) begin(now time.Duration, o *Options) uint16 {
	c.probe, c.next = (c.probe+1)|1, now+c.patience(o)
	return c.probe
}

// patience returns how long a probe may be in flight before another one is due.
func (c *pace) patience(o *Options) time.Duration { return equalJitter(c.hangs(o), o.Rand) }

// hangs returns the longest patience: twice as long after each probe that hung.
func (c *pace) hangs(o *Options) time.Duration {
	r := rhythms[c.why]
	switch {
	case o.ActiveProbe: // no client waits for it, and a late response to it counts
		r = rhythms[OpenedByStall]
	case o.Backoff != nil: // its waits set the pace, and not how long a response takes
		r.hang = max(r.hang, rhythms[OpenedByRefused].hangMax)
	}
	return max(r.hang, min(c.wait, r.hangMax))
}

// fail ends the probe in flight as a failure of the upstream.
func (c *pace) fail(now time.Duration, why OpenedBy, o *Options) {
	c.why = why
	c.failed++
	c.waitFor(now, o)
}

// discard ends the probe in flight without a result; another is due at once.
func (c *pace) discard() { c.probe, c.next = c.probe+c.probe%2, 0 }

// proved records that the upstream works.
func (c *pace) proved() {
	c.failed, c.wait = 0, 0
	c.resets++
}

// nextEvent returns when expire changes something, or Forever.
func (c *pace) nextEvent() time.Duration {
	if c.next == 0 {
		return backoff.Forever
	}
	return c.next
}
