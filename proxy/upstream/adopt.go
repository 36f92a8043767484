package upstream

import "net"

// Adopt makes a Conn of a connection that the pool did not dial. It counts as
// active while it is held; it is Fresh, and fit for the pool only if its
// holder releases it.
func (p *Pool) Adopt(c net.Conn) *Conn { return p.newConn("", c, nil) }

// Adopt makes a Conn as Pool.Adopt does. It belongs to no endpoint.
func (g *Group) Adopt(c net.Conn) *Conn {
	if g.singlePool != nil {
		return g.singlePool.Adopt(c)
	}
	return g.adoptedPool.Adopt(c)
}
