package proxy

import (
	"net"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/lot"
	"github.com/retryproxy/retryproxy/proxy/internal/sock"
)

// parkAfter is how long a caller's connection is idle, at least, before it is
// parked: twice that at most. One that is used more often never pays for it.
const parkAfter = time.Second

// parked is what stays of a caller's connection while it is in the server's
// lot: no goroutine, no buffer, none of the memory for requests. It still is one
// of the server's connections and holds its slot. docs/decisions/0013-parking.md
// has the reasons.
type parked struct {
	server *Server
	nc     net.Conn
	listen string
	used   bool // it has sent something
	told   *net.TCPAddr
	until  instant
}

// park leaves the waiting for the next request to the server's lot, until the
// time given. True: the connection is the lot's, and this goroutine must not
// touch it any more.
func (c *conn) park(until instant) bool {
	s := c.server
	if s.closingIdle() || c.in != nil || c.nc.SetDeadline(time.Time{}) != nil {
		return false
	}
	c.phase.Store(phaseBusy) // nobody may wake it by its deadline any more
	p := &parked{server: s, nc: sock.Under(c.wire), listen: c.listen, used: c.used, told: c.told, until: until}
	if s.lot.Park(c.raw, s.at(until), p) == nil {
		c.left = true
		return true
	}
	c.readAt, c.writeAt = 0, 0
	c.phase.Store(phaseIdle)
	return false
}

// Leave gives the connection its goroutine again.
func (p *parked) Leave(lot.Why) {
	s := p.server
	if s.killed.Load() {
		_ = p.nc.Close()
		s.gone()
		return
	}
	s.wg.Go(func() { s.run(p.resume()) })
}

// resume makes a connection of what was kept. What it waited for, or was woken
// for, it finds out as if it had waited itself.
func (p *parked) resume() *conn {
	c := newPlainConn(p.server, p.nc, p.listen)
	c.parks, c.told, c.idleEnd = true, p.told, p.until
	if c.used = p.used; c.used {
		c.x.began = start // what it says next is not the first
	}
	return c
}
