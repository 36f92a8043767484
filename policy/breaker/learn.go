package breaker

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// learner collects one window of counters and latencies after another.
type learner struct {
	folded time.Duration // the end of the last window
	peak   int64         // most requests awaiting a response at any observation since then

	// An upstream that gets more requests than it answers differs from one that only became
	// slower: its attempts in flight grow from window to window. They also grow for the time
	// of one response when latency rises, so the first window that looks overloaded is the
	// base.
	base int64 // attempts in flight at its end; 0: no window looked like that
}

// recoverySlowdown is the minimum ratio of latencies after an outage to the usual 90th
// percentile from which the upstream counts as slower. With 2, fifty proxies that
// return at once to a small upstream would mistake each other's load for slowness.
const recoverySlowdown = 4

// merelySlow reports whether a late response shows that the upstream was slow all the time and not
// down: it comes as long after the one that ended the outage as their requests were sent apart, or nearly. Responses
// of one that was stopped come all at once or in a queue, those of an overloaded one ever farther apart.
func (c *core) merelySlow(sent, now time.Duration) bool {
	w, u := &c.window, &c.baseline
	apart, later := sent-w.proof, now-w.outage
	return w.recovering() && w.proof > 0 && sent < w.outage && u.Known() && apart >= overdue(u) &&
		(later-apart).Abs() <= apart/8 && now-sent > recoverySlowdown*u.P90
}

// learn processes the window of latencies that ends now and lasted dt. Only windows without
// trouble change the baseline.
func (c *core) learn(now, dt time.Duration) {
	u, l, inFlight := &c.baseline, &c.learner, c.counters.awaiting()
	var w latency.Sums
	c.counters.fresh.Drain(&w)
	// The mean concurrency is Little's law, capped at the peak: a long poll that ends counts for
	// more than its window.
	mean := min(float64(w.Sum)/float64(dt), float64(l.peak))
	pending := c.counters.older(l.folded)
	l.peak, l.folded = inFlight, now
	switch {
	case c.window.binds():
	case overloaded(u, &w, mean), l.base > 0 && inFlight >= several && w.Total < many:
		switch {
		case l.base == 0:
			l.base = max(inFlight, 1)
		case float64(inFlight-l.base) > max(several, 3*math.Sqrt(w.Total)) && c.mayBind(): // more than by chance
			l.base = 0
			c.bind(now, inFlight)
		}
	default:
		l.base = 0
		if w.Total > 0 {
			u.SawPending(pending)
		}
		u.Fold(&w, dt, mean, !u.Known() || !slower(u, &w, 0.5, minGain))
	}
}

// slower reports whether the quantile q of a window's latencies exceeds times the usual
// 90th percentile.
func slower(u *latency.Baseline, w *latency.Sums, q, times float64) bool {
	return float64(w.Quantile(q)) > times*float64(u.P90)
}

// overloaded reports whether a window looks like overload: even its fast responses took
// twice the usual 90th percentile, and there were more in flight than ever sustained.
// Endpoints that differ tenfold do not look like this, whatever their mix. Nor does an
// upstream that takes more load without becoming slow.
func overloaded(u *latency.Baseline, w *latency.Sums, mean float64) bool {
	return u.Established() && w.Total >= many &&
		mean >= several && mean > u.Concurrency && slower(u, w, 0.2, slowTimes)
}

// wasSlow makes a latency that load does not cause the new baseline, and lets the window grow on without a
// top, from the concurrency that sustains the same goodput (Little's law). If more than that is in flight, it
// may be the reason, and nothing is learnt.
func (c *core) wasSlow(took, now time.Duration) {
	u := &c.baseline
	needed := u.Concurrency * float64(took) / float64(max(u.Mean(), 1))
	if float64(c.counters.awaiting()) > needed {
		return
	}
	var seen latency.Sums
	for range latency.KnownSamples {
		seen.Add(took)
	}
	u.Relearn(&seen)
	c.window.regrow(now, max(startFactor*u.Concurrency, needed), c.counters)
}
