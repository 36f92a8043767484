package breaker

import "time"

// An incomplete request cannot be answered, and its duration depends on its client. So it
// is no evidence: it is not missing in a silence, its failure does not count, and its
// latency begins when it is sent completely. It keeps its permit all the time, since it
// occupies the upstream.
//
// It is not the probe either, since other requests would wait for its client. If no
// complete request waits, one is admitted now and then. Once it is sent completely, it is
// evidence like any other request sent after the breaker opened.

// Sending records that the attempt with permit p, just taken, is sent before its request is
// complete. The returned Permit replaces p.
func (g *Guard) Sending(p Permit) Permit {
	if p.kind == permitTaken {
		g.counters.sending.Add(1)
		p.kind = permitSending
	}
	return p
}

// Sent records that the request of the attempt with permit p was sent completely at the
// time at. The returned Permit replaces p.
func (g *Guard) Sent(p Permit, at time.Duration) Permit {
	if p.kind == permitSending {
		g.counters.sending.Add(-1)
		p.kind, p.at = permitTaken, max(p.at, at)
	}
	return p
}

// Sending reports whether the request of the attempt is not known to be sent completely.
func (p Permit) Sending() bool { return p.kind == permitSending }

// releaseUnfinished releases the permit of an attempt whose request was not sent
// completely.
func (g *Guard) releaseUnfinished(now time.Duration, e AttemptEnd) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.silence.responseSeen(e)
	g.counters.releaseUnfinished(e.Kind == Responded)
	before := g.core.eventAt
	g.core.refreshIfDue(now)
	return g.core.finish(now, before)
}
