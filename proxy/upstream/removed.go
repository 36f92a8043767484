package upstream

import (
	"context"
	"slices"
)

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
	if g.lookup(ctx) != nil {
		return false
	}
	v := g.picker.Load()
	return v != nil && !slices.ContainsFunc(v.endpoints, func(m *Endpoint) bool { return m.addr == addr })
}
