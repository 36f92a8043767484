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

	recovery latency.Sums  // of the first responses to requests sent since
	since    time.Duration // 0: nothing is watched
	lateSent time.Duration // when the request of the first response was sent that came since, if it was sent before
	lateAt   time.Duration // when that response came; 0: none did
}

// recoverySlowdown is the minimum ratio of each of the first latencies after an outage to the
// usual 90th percentile from which the upstream counts as slower. With 2, fifty proxies that
// return at once to a small upstream would mistake each other's load for slowness.
const recoverySlowdown = 4

// begin starts the watch on the first responses after an outage, unless it already runs. It
// keeps running if the breaker opens again during slow start: that is the same outage, or the
// slowness to be detected.
func (l *learner) begin(now time.Duration) {
	if l.since == 0 {
		l.since, l.lateAt = now, 0
	}
}

// recovered records a good response during slow start. It reports once whether the upstream
// came back slower, with cold caches, in a new version, on a busy machine: every one of the
// first responses took far longer than usual. They are to requests that were sent almost
// alone; later ones may be slow because of the load of this proxy and others.
func (l *learner) recovered(sent, now time.Duration, u *latency.Baseline) bool {
	switch {
	case l.since == 0 || !u.Known():
		return false
	case sent < l.since:
		return l.respondsLate(sent, now, u)
	case l.recovery.Total >= latency.KnownSamples:
		return false
	}
	l.recovery.Add(now - sent)
	return l.recovery.Total >= latency.KnownSamples && slower(u, &l.recovery, 0, recoverySlowdown)
}

// respondsLate records a response to a request that was sent before the slow start. It reports
// whether the upstream is merely slow. Responses of one that was stopped come all at once, however
// far apart their requests were sent, those of an overloaded one ever farther apart. Those of a slow
// one come as far apart.
func (l *learner) respondsLate(sent, now time.Duration, u *latency.Baseline) bool {
	if l.lateAt == 0 {
		l.lateSent, l.lateAt = sent, now
	}
	apart := sent - l.lateSent
	if apart < overdue(u) || now-l.lateAt < apart/2 || now-l.lateAt > apart+apart/8 || now-sent <= recoverySlowdown*u.P90 {
		return false
	}
	l.recovery = latency.Sums{}
	for range latency.KnownSamples {
		l.recovery.Add(now - sent)
	}
	return true
}

// learn processes the window of latencies that ends now and lasted dt. Only windows without
// trouble change the baseline.
func (g *core) learn(now, dt time.Duration) {
	u, l, c, inFlight := &g.baseline, &g.learner, g.counters, g.counters.awaiting()
	var w latency.Sums
	c.fresh.Drain(&w)
	// The mean concurrency is Little's law, capped at the peak: a long poll that ends counts for
	// more than its window.
	mean := min(float64(w.Sum)/float64(dt), float64(l.peak))
	pending := c.older(l.folded)
	l.peak, l.folded = inFlight, now
	switch {
	case g.window.binds():
	case overloaded(u, &w, mean), l.base > 0 && inFlight >= several && w.Total < many:
		switch {
		case l.base == 0:
			l.base = max(inFlight, 1)
		case float64(inFlight-l.base) > max(several, 3*math.Sqrt(w.Total)) && g.mayBind(): // more than by chance
			l.base = 0
			g.bind(now, inFlight)
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

// becameSlower makes the latencies seen the new baseline, and lets the window grow on without a top. The
// concurrency that sustains the same goodput grows with the latencies (Little's law). If more than that is
// in flight, it may be the reason, and nothing is learnt. If the upstream was merely slow all the time, load
// is not the reason, and the window begins there.
func (g *core) becameSlower(seen *latency.Sums, merely bool, now time.Duration) {
	u := &g.baseline
	size, needed := startFactor*u.Concurrency, u.Concurrency*float64(seen.Mean())/float64(max(u.Mean(), 1))
	if float64(g.counters.awaiting()) > needed {
		return
	}
	if merely {
		size = max(size, needed)
	}
	u.Relearn(seen)
	g.window.regrow(now, size, g.counters)
}
