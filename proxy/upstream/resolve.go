package upstream

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// unknownTTL is the refresh interval for a response without a TTL (/etc/hosts). It is
	// also the default of Envoy and HAProxy.
	unknownTTL = 5 * time.Second

	// Refresh intervals are within these limits, whatever the TTL: not too often, and soon
	// enough for names that are changed by hand.
	minTTL, maxTTL = time.Second, time.Minute

	// lookupRetryDelay is when a failed lookup is retried. Until then the last response
	// stays in use, as RFC 8767 advises, since most servers outlive an outage of the DNS.
	lookupRetryDelay = 5 * time.Second

	// lookupTimeout ends a lookup.
	lookupTimeout = 10 * time.Second
)

// source is one target of a list: a fixed address, or a name.
type source struct {
	target Target
	fixed  bool
	addrs  []resolvedAddr // of the last response
}

// resolvedAddr is an address to connect to.
type resolvedAddr struct {
	addr     string // "ip:port", or a socket's path
	priority uint16 // the lowest is used
	weight   uint32 // in [1, 1<<24)
}

// resolution is the result of looking up a name.
type resolution struct {
	addrs []resolvedAddr
	ttl   time.Duration // how long it is valid; 0: for this use only, or unknown
	err   error
}

// newSource returns the source for t, and determines whether it needs lookups.
func newSource(t Target) source {
	s := source{target: t}
	host, _, err := net.SplitHostPort(t.Address)
	_, isName := netip.ParseAddr(host)
	// The dialer reports what is wrong with a malformed address.
	s.fixed = !t.SRV && (t.Network != "tcp" || t.Dial != nil && t.Resolve == nil || err != nil || isName == nil)
	if s.fixed {
		s.addrs = []resolvedAddr{{t.Address, 0, 1}}
	}
	return s
}

// ensureResolved makes sure that there are endpoints, as recent as a dial needs them. It
// only returns a lookup error if no lookup ever succeeded.
func (g *Group) ensureResolved(ctx context.Context, o *GetOptions, total time.Duration) error {
	if g.fixed {
		return nil
	}
	forceLookup := g.lookupRequested.Load() || o.ForceLookup
	g.mu.Lock()
	have := len(g.endpoints) > 0
	fresh := have && time.Now().Before(g.validUntil)
	g.mu.Unlock()
	if fresh && !forceLookup {
		return nil
	}
	g.resolving.Add(1)
	defer g.resolving.Add(-1)
	l := g.joinLookup()
	defer g.leaveLookup(l)
	if have {
		// The last response is probably still right, so a slow resolver gets at most a
		// quarter of the dial time.
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, l.began.Add(total/4))
		defer cancel()
	}
	if err := l.await(ctx); err != nil && g.picker.Load() == nil {
		return err
	}
	return nil
}

// lookup is one lookup of all names of a group. It has a goroutine and a context of its own, so
// that no client can end it for others.
type lookup struct {
	began  time.Time
	cancel context.CancelFunc
	users  int           // guarded by Group.mu
	done   chan struct{} // closed when the goroutine ends
	err    error         // set before done is closed
}

// await waits for the end of the lookup, or for that of ctx.
func (l *lookup) await(ctx context.Context) error {
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startLookup begins a lookup, unless one is in progress. It requires mu.
func (g *Group) startLookup() *lookup {
	if g.lookup == nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		g.lookup = &lookup{began: time.Now(), cancel: cancel, done: make(chan struct{})}
		go g.resolveAll(ctx, g.lookup)
	}
	return g.lookup
}

// joinLookup returns the lookup in progress, or a new one. The caller must leave it.
func (g *Group) joinLookup() *lookup {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.startLookup()
	l.users++
	return l
}

// leaveLookup leaves l.
func (g *Group) leaveLookup(l *lookup) {
	g.mu.Lock()
	l.users--
	g.mu.Unlock()
	g.endUnusedLookup()
}

// endUnusedLookup ends the lookup in progress if the group is closed and nobody uses it.
func (g *Group) endUnusedLookup() {
	g.mu.Lock()
	l := g.lookup
	if l == nil || l.users > 0 || !g.closed {
		g.mu.Unlock()
		return
	}
	g.lookup = nil // nobody can join it any more
	g.mu.Unlock()
	l.cancel()
	<-l.done
}

// resolveAll looks up all names concurrently, and applies the result. It is the goroutine of l.
func (g *Group) resolveAll(ctx context.Context, l *lookup) {
	defer close(l.done)
	defer l.cancel()
	g.lookupRequested.Store(false)
	resolutions := make([]resolution, len(g.sources)) // their targets never change
	var all sync.WaitGroup
	for i := range g.sources {
		all.Go(func() { resolutions[i] = g.resolve(ctx, &g.sources[i]) })
	}
	all.Wait()
	var removed []*Endpoint
	g.mu.Lock()
	if g.lookup == l {
		g.lookup = nil
		removed, l.err = g.applyResolutions(resolutions)
	}
	g.mu.Unlock()
	for _, m := range removed {
		m.pool.Close()
	}
}

// applyResolutions applies the responses. A name whose lookup failed keeps its addresses.
// It requires mu.
func (g *Group) applyResolutions(resolutions []resolution) (removed []*Endpoint, err error) {
	validFor, next := maxTTL, maxTTL
	for i, a := range resolutions {
		switch s := &g.sources[i]; {
		case a.err == nil:
			s.addrs = a.addrs
			validFor = min(validFor, a.ttl)
			next = min(next, max(cmp.Or(a.ttl, unknownTTL), minTTL))
		default:
			err = errors.Join(err, a.err)
			validFor, next = min(validFor, lookupRetryDelay), min(next, lookupRetryDelay)
		}
	}
	if len(resolutions) == 1 {
		err = resolutions[0].err
	}
	g.validUntil = time.Now().Add(validFor)
	g.scheduleRefresh(next)
	return g.updateEndpoints(), err
}

// scheduleRefresh sets the timer of the next lookup. It requires mu.
func (g *Group) scheduleRefresh(after time.Duration) {
	switch {
	case g.closed:
	case g.refreshTimer == nil:
		g.refreshTimer = time.AfterFunc(after, g.refreshIfUsed)
	default:
		g.refreshTimer.Reset(after)
	}
}

// refreshIfUsed looks up the names if the group is in use; otherwise the next dial does.
// The timer calls it.
func (g *Group) refreshIfUsed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drainRemoved(nil)
	used := len(g.draining) > 0
	for _, m := range g.endpoints {
		used = used || m.inUse()
	}
	if used && !g.closed {
		g.startLookup() // on error the last response stays, and the timer is set again
	}
}

// resolveSource looks up the name of s.
func resolveSource(ctx context.Context, s *source) resolution {
	t := &s.target
	host, port, _ := net.SplitHostPort(t.Address)
	switch {
	case s.fixed:
		return resolution{addrs: s.addrs, ttl: maxTTL}
	case t.Resolve != nil:
		ips, err := t.Resolve(ctx, host)
		return newResolution(host, port, ips, err, 0)
	}
	a := &dnsLookup{server: t.DNS}
	if t.SRV {
		return a.service(ctx, t.Address)
	}
	return a.host(ctx, host, port)
}

// newResolution returns a resolver's result, in its order.
func newResolution(host, port string, ips []netip.Addr, err error, ttl time.Duration) resolution {
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	a := resolution{ttl: ttl, err: err}
	for _, ip := range ips {
		a.addrs = append(a.addrs, resolvedAddr{net.JoinHostPort(ip.Unmap().String(), port), 0, 1})
	}
	return a
}

// AddressRemoved looks the names up and reports whether addr, a Conn's, is no longer among
// their addresses. Then the upstream has moved and its remains there are drained. It
// returns false if there is no name, and if the lookup fails, which ends with ctx or at
// DefaultDialTimeout.
func (g *Group) AddressRemoved(ctx context.Context, addr string) bool {
	if g.singlePool != nil || g.fixed {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultDialTimeout)
	defer cancel()
	l := g.joinLookup()
	defer g.leaveLookup(l)
	if l.await(ctx) != nil {
		return false
	}
	v := g.picker.Load()
	return v != nil && !slices.ContainsFunc(v.endpoints, func(m *Endpoint) bool { return m.addr == addr })
}
