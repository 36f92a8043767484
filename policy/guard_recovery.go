package policy

import "time"

// recoveryLatencies holds the latencies of what was sent since the slow start began.
// An upstream can come back slower than it was, whatever the load: with cold
// caches, in a new version, on a busy machine. It then needs more at once for
// the same goodput than the slow start would give it, and silences that were
// surprising are usual now. Held to what was usual before, it gets a request
// at a time, and its clients are turned away, until that is forgotten.
//
// So when every one of the first answers took four times as long as the slow
// ones usually did, what is usual is learnt anew from them, and the slow start
// goes on for as long as more at once brings more goodput. The first answers
// are to requests that were there almost alone; later ones may be slow by what
// this proxy and others sent meanwhile, so they are not asked.
type recoveryLatencies struct {
	since time.Duration // what was sent earlier may have waited out the outage
	seen  latencySums   // of the first knownSamples
	any   bool          // since is set
}

// recoverySlowdown is how many times the usual 90th percentile each of the first
// answers takes at least. With less the limit climbs there in a few seconds;
// with two, fifty proxies that come back at once to an upstream which bears
// little take each other's load for slowness.
const recoverySlowdown = 4

// begin begins to watch, unless the breaker was not closed in between: a silence
// that opens it again during slow start is the same outage, or the slowness that
// is looked for.
func (c *recoveryLatencies) begin(now time.Duration) {
	if !c.any {
		c.since, c.any = now, true
	}
}

// recordRecovery takes in a good response during slow start, the one that it began
// for included.
func (g *Guard) recordRecovery(p Permit, now time.Duration) {
	c := &g.recovery
	if !c.any || p.at < c.since || g.breaker.state != BreakerSlowStart || c.seen.total >= knownSamples {
		return
	}
	c.seen.add(now - p.at)
	if c.seen.total < knownSamples || !g.baseline.known() || !g.slower(&c.seen, 0, recoverySlowdown) {
		return
	}
	g.becameSlower(&c.seen, now)
}
