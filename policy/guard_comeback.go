package policy

import "time"

// comeback holds the latencies of what was sent since the gate began to open.
// An upstream can come back slower than it was, whatever the load: with cold
// caches, in a new version, on a busy machine. It then needs more at once for
// the same goodput than the slow start would give it, and silences that were
// surprising are usual now. Held to what was usual before, it gets a request
// at a time, and its callers are turned away, until that is forgotten.
//
// So when every one of the first answers took four times as long as the slow
// ones usually did, what is usual is learnt anew from them, and the slow start
// goes on for as long as more at once brings more goodput. The first answers
// are to requests that were there almost alone; later ones may be slow by what
// this proxy and others sent meanwhile, so they are not asked.
type comeback struct {
	since time.Duration // what was sent earlier may have waited out the outage
	seen  latencySums   // of the first knownFrom
	any   bool          // since is set
}

// cameBackSlower is how many times the usual 90th percentile each of the first
// answers takes at least. With less the limit climbs there in a few seconds;
// with two, fifty proxies that come back at once to an upstream which bears
// little take each other's load for slowness.
const cameBackSlower = 4

// reopened begins to watch, unless the gate was not open in between: a silence
// that closes it again while it opens is the same outage, or the slowness that
// is looked for.
func (c *comeback) reopened(now time.Duration) {
	if !c.any {
		c.since, c.any = now, true
	}
}

// cameBack takes in a good answer while the gate opens, the one that it opened
// for included.
func (g *Guard) cameBack(p Place, now time.Duration) {
	c := &g.comeback
	if !c.any || p.at < c.since || g.gate.state != GateRamp || c.seen.total >= knownFrom {
		return
	}
	c.seen.add(now - p.at)
	if c.seen.total < knownFrom || !g.usual.known() || !g.slower(&c.seen, 0, cameBackSlower) {
		return
	}
	g.becameSlower(&c.seen, now)
}
