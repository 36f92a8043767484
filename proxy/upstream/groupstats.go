package upstream

import "time"

// EndpointStats is a snapshot of one address of a Group with several, or of all that are
// not counted by name. The counters never decrease.
type EndpointStats struct {
	Addr    string // "" for those not counted by name
	Active  int    // requests in flight
	Ejected bool
	// Unhealthy means that health checks fail. Such an endpoint may be ejected too.
	Unhealthy bool
	Attempts  uint64 // connections taken
	Failures  uint64 // see Endpoint.ReportFailure
}

// EndpointSummary is a snapshot of the addresses of a group.
type EndpointSummary struct {
	Used      int // neither ejected nor unhealthy
	Ejected   int // ejected after failures
	Unhealthy int // not ejected, but health checks fail
	Draining  int // no longer in the response, but with connections

	// Each has at most 33 entries: the first 32 addresses by name, and the sum of all
	// others. It is nil for a single address.
	Each []EndpointStats
}

// Stats returns a snapshot of the group: the sum of its pools, removed ones included.
func (g *Group) Stats() Stats {
	if g.singlePool != nil {
		return g.singlePool.Stats()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drainRemoved(nil)
	sum := g.removedStats
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
	return sum
}

// Endpoints returns a snapshot of the group's addresses.
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
		switch {
		case a.Ejected:
			p.Ejected++
		case a.Unhealthy:
			p.Unhealthy++
		default:
			p.Used++
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

func (e *Endpoint) stats() EndpointStats {
	s := e.pool.Stats()
	return EndpointStats{
		Addr: e.addr, Active: int(e.load()), Ejected: e.ejected(), Unhealthy: e.unhealthy.Load(),
		Attempts: s.Dials + s.Reuses, Failures: e.failed.Load(),
	}
}

// retire keeps the counters of a removed endpoint. It requires mu.
func (g *Group) retire(m *Endpoint) {
	s := m.pool.Stats()
	a := m.stats()
	s.Idle, s.Active, s.Streams, s.Dialing = 0, 0, 0, 0 // possibly from a late choice
	s.PeerExpiry = time.Time{}
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

// add adds o to s. Of the expiry times the earlier one counts.
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
	if s.PeerExpiry.IsZero() || !o.PeerExpiry.IsZero() && o.PeerExpiry.Before(s.PeerExpiry) {
		s.PeerExpiry = o.PeerExpiry
	}
}
