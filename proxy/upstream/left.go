package upstream

import (
	"context"
	"slices"
)

// Left looks the names up and reports whether addr, a Conn's, is not among
// their addresses any more: the upstream is elsewhere now, and what was left of it
// there is drained. It says no where there is no name to look up, and when
// the look-up fails, which ends with ctx or at the target's DialTimeout.
func (g *Group) Left(ctx context.Context, addr string) bool {
	if g.one != nil || g.fixed {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, g.target.dialTimeout())
	defer cancel()
	if g.lookup(ctx) != nil {
		return false
	}
	v := g.view.Load()
	return v != nil && !slices.ContainsFunc(v.members, func(m *Member) bool { return m.addr == addr })
}
