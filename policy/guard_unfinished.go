package policy

import "time"

// A request of which the upstream does not have all cannot be answered, and how long
// it takes is its client's doing. So it is no evidence: it is not missed in a
// silence, its failure is none of the upstream's, and its latency begins when it is
// sent whole. It keeps its permit all the while, since it occupies the upstream.
//
// Nor is it the probe, since others would wait for its client. Where nothing else
// waits, one is let through now and then. Once it is sent whole, it tells as much as
// any other that was sent after the breaker opened.

// Sending notes that the attempt with place p, just taken, is sent before its request
// is whole. The Place that it gives stands for p from then on.
func (g *Guard) Sending(p Permit) Permit {
	if p.kind == permitTaken {
		g.sending.Add(1)
		p.kind = permitSending
	}
	return p
}

// Sent notes that the request of the attempt with place p was sent whole at a time.
// The Place that it gives stands for p from then on.
func (g *Guard) Sent(p Permit, at time.Duration) Permit {
	if p.kind == permitSending {
		g.sending.Add(-1)
		p.kind, p.at = permitTaken, max(p.at, at)
	}
	return p
}

// Sending reports whether the request of the attempt is not known to be sent whole.
func (p Permit) Sending() bool { return p.kind == permitSending }

// releaseUnfinished gives back the place of an attempt whose request was not sent whole.
func (g *Guard) releaseUnfinished(now time.Duration, e AttemptEnd) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.Kind == Responded {
		g.slowResponded++
		g.responseSeen(e)
	} else {
		g.unsent++
	}
	g.sending.Add(-1)
	g.slowReleased++
	g.released.Add(1)
	before := g.eventAt
	g.refreshIfDue(now)
	return g.finish(now, before)
}

// awaitingResponse is how many of the requests in flight the upstream can answer.
func (g *Guard) awaitingResponse() int64 { return g.inFlight() - g.sending.Load() }

// openVerdict is what an attempt is told while the breaker is not closed.
func (g *Guard) openVerdict(now time.Duration, whole bool) Verdict {
	switch {
	case !g.breaker.due() || g.probesSeparately():
		return VerdictBreakerOpen
	case whole:
		return VerdictProbe
	case now >= g.breaker.unfinishedAt:
		return VerdictGo
	}
	return VerdictBreakerOpen
}
