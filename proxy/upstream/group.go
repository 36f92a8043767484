package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// maxEndpoints limits the addresses of a group; further ones are not used.
const maxEndpoints = 256

// Group is the addresses of one upstream, each with its own Pool. They are the addresses of
// a list and those of names, which are looked up again when their TTL has expired. It is
// safe for concurrent use.
//
// A request goes to the less loaded of two random addresses, unless its Choice differs. That
// balances nearly as well as comparing all, without herding (M. Mitzenmacher, "The Power of Two
// Choices in Randomized Load Balancing", 2001). An address that fails several times in a row is
// ejected for a while: see Endpoint.
//
// A target of one fixed address costs one field check.
type Group struct {
	target  Target
	options Options
	random  func(n uint32) uint32 // in [0, n)
	resolve func(context.Context, *source) resolution

	singlePool *Pool                  // for a single fixed address; the fields below are unused then
	picker     atomic.Pointer[picker] // nil until the first resolution
	turns      atomic.Uint64          // requests in turn so far
	passed     atomic.Uint64          // requests that got a response

	fixed bool // there are no names to look up

	lookupRequested atomic.Bool  // a failure occurred since the last lookup: the next dial looks up first
	resolving       atomic.Int64 // dials that wait for a lookup
	dnsErrors       [NumDialKinds]atomic.Uint64

	background context.Context // ends with Close; for health checks
	stop       context.CancelFunc
	checks     sync.WaitGroup // of health

	mu              sync.Mutex // guards the fields below; no I/O under it
	sources         []source
	validUntil      time.Time // until when a dial uses the last response
	lookup          *lookup   // in progress; nil: there is none
	refreshTimer    *time.Timer
	unejectTimer    *time.Timer // set to the end of the next ejection
	endpoints       []*Endpoint // of the last response
	draining        []*Endpoint // no longer in the response, but with connections
	labelledCount   int         // endpoints counted by name
	removedStats    Stats       // of removed endpoints
	unlabelledStats EndpointStats
	closed          bool
	checking        bool // health checks were started
}

// NewGroup returns a group without connections. It does not dial or look up anything.
func NewGroup(t Target, o Options) *Group {
	g := &Group{target: t, options: o.withDefaults(), random: rand.Uint32N, resolve: resolveSource}
	g.background, g.stop = context.WithCancel(context.Background())
	names := false
	for _, each := range append([]Target{t}, t.MoreTargets...) {
		each.MoreTargets = nil
		each.Dial, each.Resolve, each.DNS = t.Dial, t.Resolve, t.DNS
		s := newSource(each)
		names = names || !s.fixed
		g.sources = append(g.sources, s)
	}
	if !names && len(g.sources) == 1 {
		g.singlePool = NewPool(g.sources[0].target, g.options)
		return g
	}
	if !names {
		g.fixed = true
		g.updateEndpoints()
	}
	return g
}

// Target returns the target of the group. The caller must not change what it points to.
func (g *Group) Target() Target { return g.target }

// NotePassed records that the upstream responded to a request.
func (g *Group) NotePassed() { g.passed.Add(1) }

// Passed returns how many requests the upstream has responded to.
func (g *Group) Passed() uint64 { return g.passed.Load() }

// Several reports whether more than one address is known.
func (g *Group) Several() bool {
	if g.singlePool != nil {
		return false
	}
	v := g.picker.Load()
	return v != nil && len(v.endpoints) > 1
}

// Fixed reports whether there is one fixed address, which never changes.
func (g *Group) Fixed() bool { return g.singlePool != nil }

// Single reports whether one address is known, as of the last lookup.
func (g *Group) Single() bool {
	if g.singlePool != nil {
		return true
	}
	v := g.picker.Load()
	return v != nil && len(v.endpoints) == 1
}

// Choose returns the endpoint for the next request, for GetOptions.Endpoint. If TryPooled
// has no connection for it, Get dials the same endpoint. It returns nil if there is no
// choice.
func (g *Group) Choose(by Choice) *Endpoint {
	if g.singlePool != nil {
		return nil
	}
	v := g.picker.Load()
	if v == nil {
		return nil
	}
	return v.choose(by, g)
}

// TryPooled returns a pooled connection as Pool.TryPooled does, to the chosen endpoint, or
// nil. It does not block and does not allocate.
func (g *Group) TryPooled(o *GetOptions) *Conn {
	if g.singlePool != nil {
		return g.singlePool.TryPooled(o)
	}
	m := o.Endpoint
	if m == nil {
		if m = g.Choose(o.choice()); m == nil {
			return nil
		}
	}
	return m.pool.TryPooled(o)
}

// CloseOldest closes the longest idle connection of one of the addresses, to free its
// descriptor. It reports whether there was one.
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

// Close closes the idle connections and keeps none from then on, as Pool.Close does. Get
// still works, so that requests begun before a reload can finish. A lookup ends now, or when the
// last of them no longer waits for it.
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
	g.checks.Wait()
	g.endUnusedLookup()
}

// updateEndpoints sets the endpoints to the addresses of the sources. Removed ones are
// drained: they get no new requests, their idle connections are closed, and their requests
// in flight finish. It returns the endpoints to close after mu is released. It requires mu.
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
			if m != nil && !m.seen && !m.isOf(&s.target) {
				m = nil
			}
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
			removed = append(removed, m) // the pools of a closed group keep nothing
		}
	}
	g.endpoints = endpoints
	g.drainRemoved(removed)
	g.updatePicker()
	return removed
}

// drainRemoved starts draining the removed endpoints, and retires those that are drained.
// It requires mu.
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

// inUse reports whether the endpoint has connections or dials one.
func (e *Endpoint) inUse() bool {
	s := e.pool.Stats()
	return s.Idle+s.Active+s.Dialing > 0
}

// updatePicker rebuilds the picker from the current endpoints. It requires mu.
func (g *Group) updatePicker() { g.picker.Store(newPicker(g.endpoints)) }
