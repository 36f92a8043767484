package policy

import "time"

// A request of which the upstream does not have all cannot be answered, and how long
// it takes is its client's doing. So it is no evidence: it is not missed in a
// silence, its failure is none of the upstream's, and its latency begins when it is
// sent whole. It keeps its place all the while, since it occupies the upstream.
//
// Nor is it the probe, since others would wait for its client. Where nothing else
// waits, one is let through now and then. Once it is sent whole, it tells as much as
// any other that was sent after the gate closed.

// Sending notes that the attempt with place p, just taken, is sent before its request
// is whole. The Place that it gives stands for p from then on.
func (g *Guard) Sending(p Place) Place {
	if p.kind == placeTaken {
		g.sending.Add(1)
		p.kind = placeSending
	}
	return p
}

// Sent notes that the request of the attempt with place p was sent whole at a time.
// The Place that it gives stands for p from then on.
func (g *Guard) Sent(p Place, at time.Duration) Place {
	if p.kind == placeSending {
		g.sending.Add(-1)
		p.kind, p.at = placeTaken, max(p.at, at)
	}
	return p
}

// Sending reports whether the request of the attempt is not known to be sent whole.
func (p Place) Sending() bool { return p.kind == placeSending }

// leaveUnfinished gives back the place of an attempt whose request was not sent whole.
func (g *Guard) leaveUnfinished(now time.Duration, e Ending) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.Kind == Answered {
		g.slowAnswered++
		g.heard(e)
	} else {
		g.unsent++
	}
	g.sending.Add(-1)
	g.slowLeft++
	g.left.Add(1)
	before := g.eventAt
	g.lookIfDue(now)
	return g.settle(now, before)
}

// answerable is how many of the requests under way the upstream can answer.
func (g *Guard) answerable() int64 { return g.inFlight() - g.sending.Load() }

// shutVerdict is what an attempt is told while the gate is not open.
func (g *Guard) shutVerdict(now time.Duration, whole bool) Verdict {
	switch {
	case !g.gate.due() || g.ownProbe():
		return VerdictHold
	case whole:
		return VerdictProbe
	case now >= g.gate.unfinishedAt:
		return VerdictGo
	}
	return VerdictHold
}
