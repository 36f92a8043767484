package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// maxMembers bounds the addresses of a group; further ones are not used.
const maxMembers = 256

// Group is the addresses of one upstream, each with its own Pool: those of a
// list, and those that names stand for, which are looked up anew when their
// answer has run out. Safe for concurrent use.
//
// A request goes to the one of two addresses taken at random that has fewer
// requests in hand, which spreads nearly as well as looking at all of them and
// does not herd (M. Mitzenmacher, "The Power of Two Choices in Randomized Load
// Balancing", 2001). An address that fails several times in a row is left out
// for a while: see Member.
//
// A target of one fixed address costs a look at one field.
type Group struct {
	target  Target
	options Options
	random  func(n uint32) uint32 // in [0, n)
	find    func(context.Context, *source) answer

	one  *Pool                // of the single fixed address; nothing below is used then
	view atomic.Pointer[view] // nil until the first answer

	fixed   bool  // there is no name to look up
	adopted *Pool // of connections that the group did not dial

	doubted   atomic.Bool  // something failed since the last lookup: the next dial begins with one
	resolving atomic.Int64 // dials that wait for a lookup
	dnsErrors [NumDialKinds]atomic.Uint64

	background context.Context // ends with Close; for lookups of the timer
	stop       context.CancelFunc

	mu      sync.Mutex // guards all below; no I/O under it
	sources []source
	holds   time.Time     // until when a dial believes the last answer
	looking chan struct{} // closed at the end of the lookup under way; nil: there is none
	looked  int           // lookups that came to their end, well or not
	told    error         // what came of the last
	refresh *time.Timer
	returns *time.Timer // to the end of the next ejection
	members []*Member   // those of the last answer
	leaving []*Member   // no longer in the answer, but not without connections
	labels  int         // members counted by name
	past    Stats       // of members that are gone
	others  AddressStats
	closed  bool
}

// NewGroup makes a group without connections. It dials and looks up nothing.
func NewGroup(t Target, o Options) *Group {
	g := &Group{target: t, options: o.withDefaults(), random: rand.Uint32N, find: lookUp}
	g.background, g.stop = context.WithCancel(context.Background())
	names := false
	for _, each := range append([]Target{t}, t.Also...) {
		each.Also = nil
		each.DialTimeout, each.Dial, each.Resolve, each.DNS = t.DialTimeout, t.Dial, t.Resolve, t.DNS
		s := newSource(each)
		names = names || !s.fixed
		g.sources = append(g.sources, s)
	}
	if !names && len(g.sources) == 1 {
		g.one = NewPool(g.sources[0].target, g.options)
		return g
	}
	g.adopted = NewPool(t, g.options)
	g.adopted.Close() // it keeps nothing
	if !names {
		g.fixed = true
		g.renew()
	}
	return g
}

// Target gives what the group connects to.
func (g *Group) Target() Target { return g.target }

// Several reports whether more than one address is known.
func (g *Group) Several() bool {
	if g.one != nil {
		return false
	}
	v := g.view.Load()
	return v != nil && len(v.members) > 1
}

// Fixed reports that there is one fixed address, and will never be another.
func (g *Group) Fixed() bool { return g.one != nil }

// Single reports that one address is known, so far as names were looked up.
func (g *Group) Single() bool {
	if g.one != nil {
		return true
	}
	v := g.view.Load()
	return v != nil && len(v.members) == 1
}

// Choose gives the member whose turn it is, for GetOptions.To: a request for which
// TryPooled has nothing dials the same. Nil where there is no choice.
func (g *Group) Choose(avoid string) *Member {
	if g.one != nil {
		return nil
	}
	v := g.view.Load()
	if v == nil {
		return nil
	}
	return v.choose(avoid, g.random)
}

// TryPooled gives a pooled connection as Pool.TryPooled does, to the address
// whose turn it is, or nil. It does not block and does not allocate.
func (g *Group) TryPooled(o *GetOptions) *Conn {
	if g.one != nil {
		return g.one.TryPooled(o)
	}
	m := o.To
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
	if g.one != nil {
		return g.one.closeOldest()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if m.pool.closeOldest() {
			return true
		}
	}
	return false
}

// Close closes the idle connections and keeps none from now on, as Pool.Close
// does. Get still works, so that requests begun before a reload can finish.
func (g *Group) Close() {
	if g.one != nil {
		g.one.Close()
		return
	}
	g.stop()
	g.mu.Lock()
	g.closed = true
	for _, t := range []*time.Timer{g.refresh, g.returns} {
		if t != nil {
			t.Stop()
		}
	}
	members := g.members
	g.mu.Unlock()
	for _, m := range members {
		m.pool.Close()
	}
}

// renew makes the members those that the sources stand for. Those that are gone are
// drained: no new requests, idle connections closed, requests under way end by
// themselves. It gives the ones to be closed once mu is free. Called with mu held.
func (g *Group) renew() (gone []*Member) {
	known := make(map[string]*Member, len(g.members))
	for _, m := range g.members {
		known[m.addr] = m
	}
	var members []*Member
	for i := range g.sources {
		s := &g.sources[i]
		for _, p := range s.places {
			m := known[p.addr]
			if m == nil && len(members) < maxMembers {
				m = g.newMember(&s.target, p.addr)
			}
			if m == nil || m.seen {
				continue
			}
			m.seen, m.priority, m.weight = true, p.priority, p.weight
			members = append(members, m)
			known[p.addr] = m
		}
	}
	for _, m := range g.members {
		if !m.seen {
			gone = append(gone, m)
		}
	}
	for _, m := range members {
		m.seen = false
		if g.closed {
			gone = append(gone, m) // a pool of a closed group keeps nothing
		}
	}
	g.members = members
	g.leave(gone)
	g.look()
	return gone
}

// leave puts those that are no member any more where they are drained, and
// forgets those that are. Called with mu held.
func (g *Group) leave(gone []*Member) {
	if !g.closed {
		g.leaving = append(g.leaving, gone...)
	}
	kept := g.leaving[:0]
	for _, m := range g.leaving {
		if m.used() {
			kept = append(kept, m)
			continue
		}
		g.bury(m)
	}
	clear(g.leaving[len(kept):])
	g.leaving = kept
}

// used says whether the member has connections or makes one.
func (m *Member) used() bool {
	s := m.pool.Stats()
	return s.Idle+s.Active+s.Dialing > 0
}

// look makes the view of the members as they are now. Called with mu held.
func (g *Group) look() { g.view.Store(newView(g.members)) }
