package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// maxEndpoints bounds the addresses of a group; further ones are not used.
const maxEndpoints = 256

// Group is the addresses of one upstream, each with its own Pool: those of a
// list, and those that names stand for, which are looked up anew when their
// answer has run out. Safe for concurrent use.
//
// A request goes to the one of two addresses taken at random that has fewer
// requests in flight, which spreads nearly as well as looking at all of them and
// does not herd (M. Mitzenmacher, "The Power of Two Choices in Randomized Load
// Balancing", 2001). An address that fails several times in a row is ejected
// for a while: see Member.
//
// A target of one fixed address costs a look at one field.
type Group struct {
	target  Target
	options Options
	random  func(n uint32) uint32 // in [0, n)
	resolve func(context.Context, *source) resolution

	singlePool *Pool                  // of the single fixed address; nothing below is used then
	picker     atomic.Pointer[picker] // nil until the first response

	fixed       bool  // there is no name to look up
	adoptedPool *Pool // of connections that the group did not dial

	lookupRequested atomic.Bool  // something failed since the last lookup: the next dial begins with one
	resolving       atomic.Int64 // dials that wait for a lookup
	dnsErrors       [NumDialKinds]atomic.Uint64

	background context.Context // ends with Close; for lookups of the timer
	stop       context.CancelFunc

	mu              sync.Mutex // guards all below; no I/O under it
	sources         []source
	validUntil      time.Time     // until when a dial believes the last response
	lookupDone      chan struct{} // closed at the end of the lookup in progress; nil: there is none
	lookups         int           // lookups that came to their end, well or not
	lookupErr       error         // what came of the last
	refreshTimer    *time.Timer
	unejectTimer    *time.Timer // to the end of the next ejection
	endpoints       []*Endpoint // those of the last response
	draining        []*Endpoint // no longer in the response, but not without connections
	labelledCount   int         // endpoints counted by name
	removedStats    Stats       // of endpoints that are gone
	unlabelledStats EndpointStats
	closed          bool
}

// NewGroup makes a group without connections. It dials and looks up nothing.
func NewGroup(t Target, o Options) *Group {
	g := &Group{target: t, options: o.withDefaults(), random: rand.Uint32N, resolve: resolveSource}
	g.background, g.stop = context.WithCancel(context.Background())
	names := false
	for _, each := range append([]Target{t}, t.MoreTargets...) {
		each.MoreTargets = nil
		each.DialTimeout, each.Dial, each.Resolve, each.DNS = t.DialTimeout, t.Dial, t.Resolve, t.DNS
		s := newSource(each)
		names = names || !s.fixed
		g.sources = append(g.sources, s)
	}
	if !names && len(g.sources) == 1 {
		g.singlePool = NewPool(g.sources[0].target, g.options)
		return g
	}
	g.adoptedPool = NewPool(t, g.options)
	g.adoptedPool.Close() // it keeps nothing
	if !names {
		g.fixed = true
		g.updateEndpoints()
	}
	return g
}

// Target gives what the group connects to.
func (g *Group) Target() Target { return g.target }

// Several reports whether more than one address is known.
func (g *Group) Several() bool {
	if g.singlePool != nil {
		return false
	}
	v := g.picker.Load()
	return v != nil && len(v.endpoints) > 1
}

// Fixed reports that there is one fixed address, and will never be another.
func (g *Group) Fixed() bool { return g.singlePool != nil }

// Single reports that one address is known, so far as names were looked up.
func (g *Group) Single() bool {
	if g.singlePool != nil {
		return true
	}
	v := g.picker.Load()
	return v != nil && len(v.endpoints) == 1
}

// Choose gives the endpoint whose turn it is, for GetOptions.To: a request for which
// TryPooled has nothing dials the same. Nil where there is no choice.
func (g *Group) Choose(avoid string) *Endpoint {
	if g.singlePool != nil {
		return nil
	}
	v := g.picker.Load()
	if v == nil {
		return nil
	}
	return v.pick(avoid, g.random)
}

// TryPooled gives a pooled connection as Pool.TryPooled does, to the address
// whose turn it is, or nil. It does not block and does not allocate.
func (g *Group) TryPooled(o *GetOptions) *Conn {
	if g.singlePool != nil {
		return g.singlePool.TryPooled(o)
	}
	m := o.Endpoint
	if m == nil {
		if m = g.Choose(o.Avoid); m == nil {
			return nil
		}
	}
	return m.pool.TryPooled(o)
}

// CloseOldest closes the connection to one of the addresses that is idle for longest there,
// so that its descriptor is free; no when none is idle.
func (g *Group) CloseOldest() bool {
	if g.singlePool != nil {
		return g.singlePool.closeOldest()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.endpoints {
		if m.pool.closeOldest() {
			return true
		}
	}
	return false
}

// Close closes the idle connections and keeps none from now on, as Pool.Close
// does. Get still works, so that requests begun before a reload can finish.
func (g *Group) Close() {
	if g.singlePool != nil {
		g.singlePool.Close()
		return
	}
	g.stop()
	g.mu.Lock()
	g.closed = true
	for _, t := range []*time.Timer{g.refreshTimer, g.unejectTimer} {
		if t != nil {
			t.Stop()
		}
	}
	endpoints := g.endpoints
	g.mu.Unlock()
	for _, m := range endpoints {
		m.pool.Close()
	}
}

// updateEndpoints makes the endpoints those that the sources stand for. Those that are gone are
// drained: no new requests, idle connections closed, requests in progress end by
// themselves. It gives the ones to be closed once mu is free. Called with mu held.
func (g *Group) updateEndpoints() (removed []*Endpoint) {
	known := make(map[string]*Endpoint, len(g.endpoints))
	for _, m := range g.endpoints {
		known[m.addr] = m
	}
	var endpoints []*Endpoint
	for i := range g.sources {
		s := &g.sources[i]
		for _, p := range s.addrs {
			m := known[p.addr]
			if m == nil && len(endpoints) < maxEndpoints {
				m = g.newEndpoint(&s.target, p.addr)
			}
			if m == nil || m.seen {
				continue
			}
			m.seen, m.priority, m.weight = true, p.priority, p.weight
			endpoints = append(endpoints, m)
			known[p.addr] = m
		}
	}
	for _, m := range g.endpoints {
		if !m.seen {
			removed = append(removed, m)
		}
	}
	for _, m := range endpoints {
		m.seen = false
		if g.closed {
			removed = append(removed, m) // a pool of a closed group keeps nothing
		}
	}
	g.endpoints = endpoints
	g.drainRemoved(removed)
	g.updatePicker()
	return removed
}

// drainRemoved puts those that are no endpoint any more where they are drained, and
// forgets those that are. Called with mu held.
func (g *Group) drainRemoved(removed []*Endpoint) {
	if !g.closed {
		g.draining = append(g.draining, removed...)
	}
	kept := g.draining[:0]
	for _, m := range g.draining {
		if m.inUse() {
			kept = append(kept, m)
			continue
		}
		g.retire(m)
	}
	clear(g.draining[len(kept):])
	g.draining = kept
}

// inUse says whether the endpoint has connections or makes one.
func (m *Endpoint) inUse() bool {
	s := m.pool.Stats()
	return s.Idle+s.Active+s.Dialing > 0
}

// updatePicker makes the view of the endpoints as they are now. Called with mu held.
func (g *Group) updatePicker() { g.picker.Store(newPicker(g.endpoints)) }
