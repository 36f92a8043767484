package upstream

import (
	"context"
	"net"
	"slices"
)

// Left looks the target's name up and reports whether addr, a Conn's, is not
// among its addresses any more: the upstream is elsewhere now. Then no request
// is sent on the connections there any longer: idle ones are closed, others end
// with what is on them. It says no where there is no name to look up, and when
// the look-up fails, which ends with ctx or at the target's DialTimeout.
func (p *Pool) Left(ctx context.Context, addr string) bool {
	host, port, literal := p.target.split()
	if literal {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, p.target.dialTimeout())
	defer cancel()
	ips, err := p.lookup(ctx, host)
	if err != nil || len(ips) == 0 {
		return false
	}
	for _, ip := range ips {
		if net.JoinHostPort(ip.Unmap().String(), port) == addr {
			return false
		}
	}
	p.forget(addr)
	if p.streams != nil {
		p.streams.forget(addr)
	}
	return true
}

// forget closes the idle connections to addr.
func (p *Pool) forget(addr string) {
	var gone []*Conn
	p.mu.Lock()
	p.idle = slices.DeleteFunc(p.idle, func(c *Conn) bool {
		if c.Addr != addr {
			return false
		}
		c.state = closed
		gone = append(gone, c)
		return true
	})
	p.mu.Unlock()
	for _, c := range gone {
		_ = c.Conn.Close()
	}
}

// forget gives no streams on connections to addr any more.
func (s *streams) forget(addr string) {
	var gone []*shared
	s.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(*s.conns.Load()), func(c *shared) bool {
		if c.addr != addr {
			return false
		}
		gone = append(gone, c)
		return true
	})
	s.conns.Store(&rest)
	s.mu.Unlock()
	for _, c := range gone {
		c.left.Store(true)
		s.look(c)
	}
}
