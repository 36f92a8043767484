package proxy

import (
	"net"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/idlepoller"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// parkAfter is how long a client's connection is idle, at least, before it is
// parked: twice that at most. One that is used more often never pays for it.
const parkAfter = time.Second

// parked is what stays of a client's connection while it is in the server's
// lot: no goroutine, no buffer, none of the memory for requests. It still is one
// of the server's connections and holds its slot. docs/decisions/0013-parking.md
// has the reasons.
type parked struct {
	server *Server
	nc     net.Conn
	listen string
	used   bool // it has sent something
	told   *net.TCPAddr
	since  instant // when it became idle
	until  instant
	evict  bool // it is to end: of Leave
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
	p := &parked{server: s, nc: rawsocket.Unwrap(c.wire), listen: c.listen, used: c.used, told: c.proxyAddr, since: instant(c.idleFrom.Load()), until: until}
	cost := c.cost
	c.recharge(s.costs.parked)
	if s.lot.Add(c.raw, s.at(until), p) == nil {
		c.handedToPoller = true
		return true
	}
	c.recharge(cost)
	c.readAt, c.writeAt = 0, 0
	c.phase.Store(phaseIdle)
	return false
}

// Wake gives the connection its goroutine again.
func (p *parked) Wake(why idlepoller.Reason) {
	s := p.server
	if s.killed.Load() {
		_ = p.nc.Close()
		s.gone(s.costs.parked)
		return
	}
	if p.evict = why == idlepoller.Evicted; p.evict {
		p.until = start // in the past: it has a last look
		c := p.resume()
		c.beginLeaving()
		s.wg.Go(func() { s.run(c) })
		return
	}
	s.wg.Go(func() {
		s.awaken()
		s.run(p.resume())
	})
}

// resume makes a connection of what was kept. What it waited for, or was woken
// for, it finds out as if it had waited itself.
func (p *parked) resume() *conn {
	c := newPlainConn(p.server, p.nc, p.listen)
	c.parks, c.proxyAddr, c.idleEnd = true, p.told, p.until
	c.cost = p.server.costs.plain
	if p.evict {
		c.cost = p.server.costs.parked
		c.evicted.Store(true)
	}
	if c.used = p.used; c.used {
		c.x.began = start // what it says next is not the first
	}
	return c
}
