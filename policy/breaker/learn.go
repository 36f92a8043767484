package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// learner collects one window of counters and latencies after another.
type learner struct {
	counted         int64 // fast releases that evidence has counted
	foldedSent      int64 // requests sent and answered until the end of the last window
	foldedResponded int64
	peak            int64         // most requests awaiting a response at any observation since the last window
	pendingAt       time.Duration // when pending last compared the counters...
	pendingSent     int64         // ...and the requests sent until then
	window          latency.Sums  // scratch
}

// observe observes the requests in flight, and returns the number of new fast releases.
func (l *learner) observe(c *counters) (good int64) {
	if fast := c.releasedFast(); fast > l.counted {
		good, l.counted = fast-l.counted, fast
	}
	l.peak = max(l.peak, c.awaitingResponse())
	return good
}

// observed is what a window showed besides its latencies.
type observed struct {
	atOnce          float64 // mean concurrency
	peak            int64   // maximum concurrency
	sent, responded int64
}

// next ends the window and stores its latencies in l.window.
func (l *learner) next(c *counters, dt time.Duration) observed {
	c.fresh.Drain(&l.window)
	// Little's law, capped at the peak: a long poll that ends counts for more than its
	// window.
	o := observed{peak: l.peak, atOnce: min(float64(l.window.Sum)/float64(dt), float64(l.peak))}
	l.peak = c.awaitingResponse()
	o.sent, o.responded = c.sent()-l.foldedSent, c.responses()-l.foldedResponded
	l.foldedSent, l.foldedResponded = l.foldedSent+o.sent, l.foldedResponded+o.responded
	return o
}

// pending looks for overdue requests after others were answered. At least the requests in
// flight in excess of those sent recently are overdue.
func (l *learner) pending(now time.Duration, c *counters, u *latency.Baseline, closed bool) {
	if now-l.pendingAt < max(latency.FoldEvery, overdue(u)) {
		return
	}
	sent := c.sent()
	if closed {
		u.SawPending(c.awaitingResponse() - (sent - l.pendingSent))
	}
	l.pendingAt, l.pendingSent = now, sent
}

// learn processes the window of latencies that ends now. Only windows without trouble
// change the baseline.
func (g *core) learn(now, dt time.Duration) {
	o, w := g.learner.next(g.counters, dt), &g.learner.window
	switch {
	case g.breaker.state != Closed, g.limiter.bound && !g.limiter.baselineShifted:
		g.baseline.FoldedAt = now
	case g.limiter.baselineShifted:
		g.limiter.release()
		g.baseline.Forget(now)
	case overloaded(&g.baseline, w, o.atOnce), g.limiter.overload.seen && w.Total < latency.EstablishedSamples && g.counters.awaitingResponse() >= minInFlightToBind:
		g.baseline.FoldedAt = now
		if g.limiter.overload.grows(o.sent, o.responded, 0.5*g.baseline.Rate*dt.Seconds()) && g.limiter.mayBind() {
			g.bindLimit(now, o.peak)
		}
	default:
		g.limiter.overload = overload{}
		g.baseline.Fold(w, now, dt, o.atOnce, withinBaseline(&g.baseline, w))
	}
}

// slower reports whether the quantile q of a window's latencies exceeds times the usual
// 90th percentile.
func slower(u *latency.Baseline, w *latency.Sums, q, times float64) bool {
	return float64(w.Quantile(q)) > times*float64(u.P90)
}

// withinBaseline reports whether the upstream sustains the concurrency of a window: at
// least half of its responses took no longer than 5/4 of the usual 90th percentile. Without
// a baseline it returns true.
func withinBaseline(u *latency.Baseline, w *latency.Sums) bool {
	return !u.Known() || !slower(u, w, 0.5, 1.25)
}

// overloaded reports whether a window looks like overload: even its fast responses took
// twice the usual 90th percentile, and there were more in flight than ever sustained.
// Endpoints that differ tenfold do not look like this, whatever their mix. Nor does an
// upstream that takes more load without becoming slow.
func overloaded(u *latency.Baseline, w *latency.Sums, atOnce float64) bool {
	return u.Established() && w.Total >= latency.EstablishedSamples &&
		atOnce >= minInFlightToBind && atOnce > u.Concurrency && slower(u, w, 0.2, 2)
}

// becameSlower makes the latencies seen the new baseline. The concurrency that sustains the
// same goodput grows with them (Little's law), so the limit starts there.
func (g *core) becameSlower(seen *latency.Sums, now time.Duration) {
	needed := g.baseline.Concurrency * float64(seen.Mean()) / float64(max(g.baseline.Mean, 1))
	g.baseline.Relearn(seen, now)
	g.limiter.restartSlowStart(now, needed)
}

// recoveryLatencies collects the latencies of requests sent since the slow start began. An
// upstream can recover slower than it was, whatever the load: with cold caches, in a new
// version, on a busy machine. It then needs more concurrency for the same goodput than the
// slow start would allow, and delays that were surprising are now normal. Judged by the old
// baseline, it gets one request at a time and its clients are refused until the old
// baseline has decayed.
//
// So if every one of the first responses took four times the usual 90th percentile, the
// baseline is learned anew from them. The slow start then continues as long as more
// concurrency brings more goodput. The first responses are to requests that were sent
// almost alone. Later ones may be slow because of the load of this proxy and others, so
// they do not count.
type recoveryLatencies struct {
	since time.Duration // requests sent earlier may have waited out the outage
	seen  latency.Sums  // of the first latency.KnownSamples responses
	any   bool          // since is set
}

// recoverySlowdown is the minimum ratio of each of the first latencies to the usual 90th
// percentile. Below it, the climb reaches the right limit in a few seconds. With 2, fifty
// proxies that return at once to a small upstream would mistake each other's load for
// slowness.
const recoverySlowdown = 4

// begin starts the watch unless it already runs. It keeps running if the breaker opens
// again during slow start: that is the same outage, or the slowness to be detected.
func (c *recoveryLatencies) begin(now time.Duration) {
	if !c.any {
		c.since, c.any = now, true
	}
}

// recordResponse records a good response during slow start. It reports once whether the
// upstream recovered slower.
func (c *recoveryLatencies) recordResponse(sent, now time.Duration, u *latency.Baseline) bool {
	if !c.any || sent < c.since || c.seen.Total >= latency.KnownSamples {
		return false
	}
	c.seen.Add(now - sent)
	return c.seen.Total >= latency.KnownSamples && u.Known() && slower(u, &c.seen, 0, recoverySlowdown)
}
