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
	wait      time.Duration // the wait before it

	probe  uint16        // number of the latest probe; it is odd while it is in flight
	failed int           // probes that failed since the last proof
	since  time.Duration // when the first wait after it began
	hung   int           // probes that hung since then

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
func (p *pace) shut(now time.Duration, why OpenedBy, o *Options) {
	p.why = why
	if why == OpenedByStall && p.probing() && !o.ActiveProbe {
		p.probes++
		p.next = now + p.patience(o)
		return
	}
	if p.failed == 0 {
		p.since = now
	}
	p.waitFor(now, o)
	if why == OpenedByStall || why == OpenedByLost && p.failed == 0 {
		p.discard()
	}
}

// probing reports whether a probe is in flight, due whether one may be sent.
func (p *pace) probing() bool { return p.probe%2 == 1 }
func (p *pace) due() bool     { return !p.probing() && p.next == 0 }

// waitFor sets the wait before the next probe. None is in flight.
func (p *pace) waitFor(now time.Duration, o *Options) {
	if o.Backoff != nil {
		p.wait = max(leastWait, o.Backoff.Wait(backoff.Step{Retry: p.failed, Previous: p.wait, Elapsed: now - p.since}, o.Rand))
	} else {
		r := &rhythms[p.why]
		p.wait = equalJitter(backoff.Grow(r.fail, r.failMax, 2, p.failed), o.Rand)
	}
	p.discard()
	p.next = now + p.wait
}

// equalJitter returns a duration uniform in [d/2, d].
func equalJitter(d time.Duration, r backoff.Rand) time.Duration { return d/2 + backoff.UpTo(r, d/2) }

// expire makes the probe due when its time has come, and gives up a hung one.
func (p *pace) expire(now time.Duration) {
	if p.next == 0 || now < p.next {
		return
	}
	if p.probing() {
		p.hung++
	}
	p.discard()
}

// begin starts a probe, and returns its number.
func (p *pace) begin(now time.Duration, o *Options) uint16 {
	p.probe, p.next = (p.probe+1)|1, now+p.patience(o)
	return p.probe
}

// patience returns how long a probe may be in flight before another one is due.
func (p *pace) patience(o *Options) time.Duration {
	r := rhythms[p.why]
	switch {
	case o.ActiveProbe: // no client waits for it, and a late response to it counts
		r = rhythms[OpenedByStall]
	case o.Backoff != nil: // its waits set the pace, and not how long a response takes
		r.hang = max(r.hang, rhythms[OpenedByRefused].hangMax)
	}
	return equalJitter(backoff.Grow(r.hang, r.hangMax, 2, p.hung), o.Rand)
}

// fail ends the probe in flight as a failure of the upstream.
func (p *pace) fail(now time.Duration, why OpenedBy, o *Options) {
	p.why = why
	p.failed++
	p.waitFor(now, o)
}

// discard ends the probe in flight without a result; another is due at once.
func (p *pace) discard() { p.probe, p.next = p.probe+p.probe%2, 0 }

// proved records that the upstream works.
func (p *pace) proved() {
	p.failed, p.hung, p.wait = 0, 0, 0
	p.resets++
}

// nextEvent returns when expire changes something, or Forever.
func (p *pace) nextEvent() time.Duration {
	if p.next == 0 {
		return backoff.Forever
	}
	return p.next
}
