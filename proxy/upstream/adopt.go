package upstream

import "net"

// Adopt wraps a connection that the pool did not dial. It counts as active until it is
// released or closed. It is Fresh, and enters the pool only if it is released.
func (p *Pool) Adopt(c net.Conn) *Conn { return p.newConn("", c, nil) }

// Adopt wraps a connection as Pool.Adopt does. It belongs to no endpoint.
func (g *Group) Adopt(c net.Conn) *Conn {
	if g.singlePool != nil {
		return g.singlePool.Adopt(c)
	}
	return g.adoptedPool.Adopt(c)
}
