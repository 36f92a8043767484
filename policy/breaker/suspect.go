package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/latency"
)

// suspectState is the state between a surprising silence and one that shows that the
// upstream is down. A stopped upstream and one that only became slower look the same until
// the first response. A wrong guess costs clients of a healthy upstream their responses,
// and a limit learned from it costs more. So new requests wait, and one is admitted every
// suspectInterval. If the upstream is slow, responses keep arriving one by one. If it is
// down, it has a few more requests to work off.
type suspectState struct {
	on            bool
	mayAdmit      bool          // one request may be admitted
	trialUsed     bool          // one request was admitted for its URL
	nextAdmitAt   time.Duration // when the next one may be
	admitInterval time.Duration
}

const (
	// While suspect, one request is admitted every suspectMinInterval. With less traffic it
	// is every suspectGaps times the usual gap between requests, so that fifty proxies with
	// little traffic admit as few as one with much. It is never longer than
	// suspectMaxInterval.
	suspectMinInterval = 100 * time.Millisecond
	suspectGaps        = 4
	suspectMaxInterval = time.Second
	// A silence opens the breaker when it has lasted for downFrom and for downTimes the
	// median latency, but no longer than downMax: what took 100 ms may take ten times as
	// long. So a stopped upstream with latencies of 100 ms gets eight requests while
	// suspect, and clients with 2 s of patience are still there when the breaker opens.
	// Clients know what they wait for, so leftLateUnknown of them that left late open it at
	// once.
	downFrom  = 1150 * time.Millisecond
	downTimes = 11
	downMax   = 10 * time.Second
)

// downAfter returns how long a silence lasts that shows that the upstream is down.
func downAfter(u *latency.Baseline) time.Duration {
	return max(downFrom, min(downTimes*u.Median, downMax))
}

// suspectInterval returns the time between two admitted requests.
func suspectInterval(u *latency.Baseline) time.Duration {
	if u.Rate <= 0 {
		return suspectMinInterval
	}
	return max(suspectMinInterval, min(time.Duration(suspectGaps/u.Rate*float64(time.Second)), suspectMaxInterval))
}

// begin starts the suspicion; it has no effect if it is already on.
func (d *suspectState) begin(now, every time.Duration) {
	if !d.on {
		*d = suspectState{on: true, admitInterval: every, nextAdmitAt: now + every}
	}
}

// expire allows one request when it is time.
func (d *suspectState) expire(now time.Duration) {
	if d.on && now >= d.nextAdmitAt {
		d.mayAdmit = true
	}
}

// nextEvent returns when expire changes something, or Forever.
func (d *suspectState) nextEvent() time.Duration {
	if !d.on || d.mayAdmit {
		return backoff.Forever
	}
	return d.nextAdmitAt
}

// admitted records that a request was admitted.
func (d *suspectState) admitted(now time.Duration) {
	if d.on {
		d.mayAdmit, d.nextAdmitAt = false, now+d.admitInterval
	}
}

// checkStall evaluates a silence if requests can still be held back: by the breaker, or by
// a limit that does not bind yet.
func (g *core) checkStall(now time.Duration) {
	watched := g.breaker.allowsRequests()
	if g.options.NoBreaker {
		watched = g.limiter.mayBind()
	}
	if !watched {
		g.silence.suspect = suspectState{}
		return
	}
	if g.silence.judge(now, &g.baseline, g.counters.awaitingResponse()) {
		g.tripBreaker(now, OpenedByStall)
	}
}
