package upstream

import "time"

// EndpointStats is a picture of one address of a Group of several, or of all
// those that are not counted by name. The counters never go down.
type EndpointStats struct {
	Addr     string // "" for those not counted by name
	Active   int    // requests in flight
	Ejected  bool
	Attempts uint64 // connections handed out
	Failures uint64 // see Member.Failed
}

// EndpointSummary is a picture of the addresses of a group.
type EndpointSummary struct {
	Used     int // those that requests go to, or may
	Ejected  int // those ejected for their failures
	Draining int // those that are gone from the response and still have connections

	// Each of them, at most 33: of the first 32 by name, the last is the
	// sum of all others. Nil where there is one.
	Each []EndpointStats
}

// Stats gives a picture of the group: the sum of its pools, of those that are
// gone too.
func (g *Group) Stats() Stats {
	if g.singlePool != nil {
		return g.singlePool.Stats()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drainRemoved(nil)
	sum := g.removedStats
	adopted := g.adoptedPool.Stats()
	sum.add(&adopted)
	for _, all := range [][]*Endpoint{g.endpoints, g.draining} {
		for _, m := range all {
			s := m.pool.Stats()
			sum.add(&s)
		}
	}
	sum.Dialing += int(g.resolving.Load())
	for k := range g.dnsErrors {
		sum.DialErrors[k] += g.dnsErrors[k].Load()
	}
	if sum.IdleLimit == 0 {
		sum.IdleLimit = g.options.IdleAge
	}
	return sum
}

// Endpoints gives a picture of the group's addresses.
func (g *Group) Endpoints() EndpointSummary {
	if g.singlePool != nil {
		return EndpointSummary{Used: 1}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drainRemoved(nil)
	p := EndpointSummary{Draining: len(g.draining)}
	others, summed := g.unlabelledStats, 0
	for _, m := range g.endpoints {
		a := m.stats()
		if p.Used++; a.Ejected {
			p.Used--
			p.Ejected++
		}
		if m.labelled {
			p.Each = append(p.Each, a)
			continue
		}
		summed++
		others.add(&a)
	}
	for _, m := range g.draining {
		if a := m.stats(); !m.labelled {
			others.add(&a)
		}
	}
	if len(g.endpoints) < 2 {
		p.Each = nil
	} else if summed > 0 || others.Attempts > 0 {
		p.Each = append(p.Each, others)
	}
	return p
}

func (m *Endpoint) stats() EndpointStats {
	s := m.pool.Stats()
	return EndpointStats{
		Addr: m.addr, Active: int(m.load()), Ejected: m.ejected(),
		Attempts: s.Dials + s.Reuses, Failures: m.failed.Load(),
	}
}

// retire keeps the counters of a endpoint that is gone. Called with mu held.
func (g *Group) retire(m *Endpoint) {
	s := m.pool.Stats()
	a := m.stats()
	s.Idle, s.Active, s.Streams, s.Dialing = 0, 0, 0, 0 // of one who still chose it
	s.IdleLimit, s.PeerExpiry = 0, time.Time{}
	g.removedStats.add(&s)
	if m.labelled {
		g.labelledCount--
		return
	}
	a.Active = 0
	g.unlabelledStats.add(&a)
}

func (a *EndpointStats) add(o *EndpointStats) {
	a.Active += o.Active
	a.Attempts += o.Attempts
	a.Failures += o.Failures
}

// add sums up; of limits and ends the earliest counts.
func (s *Stats) add(o *Stats) {
	s.Idle += o.Idle
	s.Active += o.Active
	s.Streams += o.Streams
	s.Dialing += o.Dialing
	s.Dials += o.Dials
	for k := range s.DialErrors {
		s.DialErrors[k] += o.DialErrors[k]
	}
	s.Reuses += o.Reuses
	s.IdleCloses += o.IdleCloses
	s.Unsolicited += o.Unsolicited
	if s.IdleLimit == 0 || o.IdleLimit != 0 && o.IdleLimit < s.IdleLimit {
		s.IdleLimit = o.IdleLimit
	}
	if s.PeerExpiry.IsZero() || !o.PeerExpiry.IsZero() && o.PeerExpiry.Before(s.PeerExpiry) {
		s.PeerExpiry = o.PeerExpiry
	}
}
