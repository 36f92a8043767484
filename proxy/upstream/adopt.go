package upstream

import "net"

// Adopt makes a Conn of a connection that the pool did not dial. It counts as
// active while it is held; it is Fresh, and fit for the pool only if its
// holder releases it.
func (p *Pool) Adopt(c net.Conn) *Conn { return p.newConn("", c, nil) }
