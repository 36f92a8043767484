package proxy

import (
	"bytes"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy/proxyproto"
)

// announces says whether the connection has to begin with a header of the PROXY
// protocol. No unix socket does: it has no address to be trusted by.
func (n *settings) announces(nc net.Conn) bool {
	if len(n.ProxyProtocolFrom) == 0 {
		return false
	}
	a, ok := nc.RemoteAddr().(*net.TCPAddr)
	return ok && n.announcers.Trusted(a.AddrPort().Addr())
}

// announced reads the header that the connection has to begin with, before all
// else that is said on it. False: there was none that could be read, and the
// connection is closed without a word, since nobody knows in which protocol.
func (c *conn) announced() bool {
	set := c.server.settings.Load()
	c.phase.Store(phaseIdle) // a drain that ends idle clients ends this one too
	c.setRead(c.server.now().Add(set.ReadHeaderTimeout), 0)
	if c.server.closingIdle() {
		return false
	}
	why := c.readProxyHeader()
	c.phase.Store(phaseBusy)
	if why == proxyproto.None {
		_ = c.nc.SetReadDeadline(time.Time{})
		c.readAt = 0
		c.startTLS(set)
		return true
	}
	c.x.mustReset = true // nothing is to be read on
	_ = c.wire.Close()
	if c.w > 0 || why == proxyproto.TimedOut && !c.server.closingIdle() {
		c.server.headerFailures[why].Add(1)
		set.Log.Debug("a connection without the PROXY protocol header that it has to begin with", zap.Stringer("peer", c.wire.RemoteAddr()), zap.Error(why))
	}
	return false
}

// readProxyHeader reads until the header is whole, and keeps what came after it
// for those who read on.
func (c *conn) readProxyHeader() proxyproto.Failure {
	c.in = getBuffer(proxyproto.MaxBytes)
	for {
		h, n, why := proxyproto.Parse(c.in[:c.w])
		switch {
		case why != proxyproto.None:
			return why
		case n > 0:
			if h.Source.IsValid() {
				c.proxyAddr = net.TCPAddrFromAddrPort(h.Source)
			}
			c.r = n
			c.compact()
			c.dropBuffer()
			return proxyproto.None
		}
		if err := c.fill(); isTimeout(err) {
			return proxyproto.TimedOut
		} else if err != nil {
			return proxyproto.Truncated
		}
	}
}

// remote is the client's address: what was announced, else the connection's.
func (c *conn) remote() net.Addr {
	if c.proxyAddr != nil {
		return c.proxyAddr
	}
	return c.nc.RemoteAddr()
}

// unread is nc with what was read already before what it reads.
func (c *conn) unread(nc net.Conn) net.Conn {
	if c.r < c.w {
		nc = &prefixedConn{Conn: nc, prefix: bytes.Clone(c.in[c.r:c.w])}
		c.r = c.w
	}
	c.dropBuffer()
	return nc
}
