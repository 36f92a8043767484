package policy

import "time"

// pace watches how the responses come to what was sent in a silence, once the first
// of them is there. From an upstream that only became slower they come at the
// pace in which their requests were sent, each after the same time. One that was stopped
// and goes on answers what it has at once, or as fast as it can.
//
// If it is slowness, it is usual from now on, and the requests that wait are
// not let in as to an upstream that has to be spared.
type pace struct {
	on              bool
	from            time.Duration // what was sent since then counts
	firstResponseAt time.Duration // when the first of them was answered
	first           time.Duration // when the first and the last of those answered were sent
	last            time.Duration
	seen            latencySums // of them
}

const (
	// paceSpan is how far apart in time those must have been sent that tell: a
	// server that goes on may need 100 ms for what it has.
	paceSpan = 400 * time.Millisecond
	// paceShare is how much of that their responses are apart at least.
	paceShare = 0.6
	// paceMaxLatency is what is taken for slowness at most: what takes longer is of
	// use to few clients, and waited out an outage more likely.
	paceMaxLatency = 5 * time.Second
)

func (p *pace) begin(from time.Duration) { *p = pace{on: true, from: from} }

// recordResponse takes in a good response, and says once whether the upstream has become
// slower.
func (p *pace) recordResponse(sent, now time.Duration) (slower bool) {
	if p.on && p.seen.total == 0 && sent >= p.from {
		p.firstResponseAt, p.first, p.last = now, sent, sent
	}
	if !p.on || sent < p.from || sent >= p.firstResponseAt {
		return false
	}
	p.seen.add(now - sent)
	p.first, p.last = min(p.first, sent), max(p.last, sent)
	span := p.last - p.first
	slower = span >= paceSpan && float64(now-p.firstResponseAt) >= paceShare*float64(span) && p.seen.total >= knownSamples && now-sent <= paceMaxLatency
	p.on = !slower
	return slower
}

// expire ends the watch when too few answers came to tell.
func (p *pace) expire(now time.Duration) {
	if p.seen.total > 0 && now-p.firstResponseAt > paceMaxLatency {
		p.on = false
	}
}

// recordPace takes in a good response that may show that the upstream is slower
// than it was.
func (g *Guard) recordPace(p Permit, now time.Duration) {
	if g.pace.recordResponse(p.at, now) && g.baseline.known() && g.slower(&g.pace.seen, 0, recoverySlowdown) {
		g.becameSlower(&g.pace.seen, now)
	}
}

// becameSlower takes the latencies for usual. The concurrency that the same
// goodput needs grows with them (Little's law), so a limit begins there.
func (g *Guard) becameSlower(seen *latencySums, now time.Duration) {
	needed := g.baseline.concurrency * float64(seen.mean()) / float64(max(g.baseline.mean, 1))
	g.baseline.relearn(seen, now)
	g.limiter.restartSlowStart(now, needed)
}
