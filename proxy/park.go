package proxy

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/idlepoller"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/slots"
)

// parkAfter is how long a client's connection is idle before it is parked: at least this long, and
// at most half as long again, which is a second. A connection that is used more often has no cost from
// parking.
const parkAfter = 650 * time.Millisecond

// parked is what remains of a client's connection while it waits in the server's idle poller: no
// goroutine, no buffer of ours, no memory for requests. It is still one of the server's connections and
// holds its slot. See docs/decisions/0013-parking.md.
type parked struct {
	server    *Server
	nc        net.Conn  // with TLS: what tls reads from
	tls       *tls.Conn // nil without TLS
	listen    string
	used      bool // the client has sent something
	proxyAddr *net.TCPAddr
	since     clock.Instant // when it became idle
	until     clock.Instant
	evict     bool // it must end because others need its slot
	slot      *slots.Slot
}

// park hands the wait for the next request to the server's idle poller, until the given time. If
// it reports true, the poller owns the connection, and this goroutine must not touch it any more.
func (c *conn) park(until clock.Instant) bool {
	s := c.server
	c.client.ReleaseIdleBuffers() // a read through TLS had one
	if s.drain.closingIdle() || c.client.HasBuffer() || c.client.NC.SetDeadline(time.Time{}) != nil {
		return false
	}
	c.client.Enter(downstream.PhaseBusy) // no deadline may wake it any more
	p := &parked{server: s, nc: rawsocket.Unwrap(c.client.Wire), tls: c.client.TLS, listen: c.client.Listener, used: c.used.Load(), proxyAddr: c.proxyAddr, since: clock.Instant(c.idleFrom.Load()), until: until}
	if p.tls != nil {
		p.nc = c.client.Wire
	}
	cost := c.slot.Cost()
	s.clients.slots.Charge(c.slot, s.clients.costs.parked)
	p.slot = c.slot
	if s.parked.Add(c.client.Raw, s.process.Clock.At(until), p) == nil {
		c.handedToPoller = true
		return true
	}
	s.clients.slots.Charge(c.slot, cost)
	c.client.ForgetDeadlines()
	c.client.Enter(downstream.PhaseIdle)
	return false
}

// Wake gives the connection a goroutine again.
func (p *parked) Wake(why idlepoller.Reason) {
	s := p.server
	if s.connected.killed.Load() {
		_ = p.nc.Close()
		s.gone(p.slot)
		return
	}
	if p.evict = why == idlepoller.Evicted; p.evict {
		p.until = clock.Start // in the past: only what has arrived is read
		c := p.resume()
		c.beginLeaving()
		s.connected.goroutines.Go(func() { s.run(c) })
		return
	}
	s.connected.goroutines.Go(func() {
		if !s.clients.makeRoom(p.slot, s.clients.costs.newcomer, p.rank(), roomWithin) {
			s.turnAway(acceptedConn{nc: p.nc, tls: p.tls != nil})
			s.gone(p.slot)
			return
		}
		s.run(p.resume())
	})
}

// rank returns in which order the client gets memory again. What the first bytes of a client begin may be
// anything, unless a whole request has arrived: clients that were a moment late are not behind others.
func (p *parked) rank() slots.Rank {
	if p.used || p.hasRequest() {
		return slots.Request
	}
	return slots.Newcomer
}

// hasRequest reports whether a request that needs no more than its response has arrived. Over TLS, it is not
// known.
func (p *parked) hasRequest() bool {
	socket, is := p.nc.(syscall.Conn)
	if p.tls != nil || !is {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	b := buffer.Get(buffer.Small)
	defer b.Put()
	arrived, space := 0, b.Bytes()
	if raw.Control(func(fd uintptr) { arrived, _ = rawsocket.TryPeek(fd, space) }) != nil {
		return false
	}
	var r http1.Request
	n, err := r.Parse(space[:arrived], p.server.settings.Load().Limits)
	return n > 0 && err == nil && !isAwaited(r.Body, arrived-n)
}

// resume makes a connection from what was kept. The connection itself determines why it was woken,
// as if it had waited itself.
func (p *parked) resume() *conn {
	c := newPlainConn(p.server, p.nc, p.listen)
	c.parks, c.proxyAddr, c.idleEnd = true, p.proxyAddr, p.until
	if c.handshaken = p.tls != nil; c.handshaken {
		c.client.UseTLS(p.tls)
		c.isSecure = true
	}
	c.slot = p.slot
	c.beginProgress(c.server.now())
	if p.evict {
		c.evicted.Store(true)
	}
	if c.used.Store(p.used); p.used {
		c.begun = true // the next bytes are not its first
	}
	return c
}
