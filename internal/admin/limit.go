package admin

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// limited lets at most so many connections be open at once. If all are, the next one takes
// the place of another: of the connection that has gone the longest without a whole request,
// or, if all are being answered, of the one that was asked first. So nobody who opens
// connections keeps a probe or a scrape out, which is answered long before as many newer
// ones have come. Some places are only for the programs of this machine, such as probes by
// command.
type limited struct {
	net.Listener
	most    int // open at once
	outside int // of them at most, from other machines

	mu    sync.Mutex // guards the fields below and the states in open
	open  map[*limitedConn]struct{}
	local int // of open
}

// localShare of the places, one in so many, is only for this machine.
const localShare = 8

func newLimited(l net.Listener, n int) *limited {
	return &limited{Listener: l, most: n, outside: n - n/localShare, open: map[*limitedConn]struct{}{}}
}

// Accept returns the next connection.
func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: conn, of: l, local: isLocal(conn), since: time.Now()}
	if out := l.admit(c); out != nil {
		_ = out.Conn.Close()
	}
	return c, nil
}

// admit adds c and returns the connection to close for it, nil for none.
func (l *limited) admit(c *limitedConn) (out *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	crowded := !c.local && len(l.open)-l.local >= l.outside
	if crowded || len(l.open) >= l.most {
		out = l.dispensable(crowded)
		l.forget(out)
	}
	l.open[c] = struct{}{}
	if c.local {
		l.local++
	}
	return out
}

// dispensable returns the connection to close for the next one: only of another machine if
// outside is set. It requires mu, and that there is one.
func (l *limited) dispensable(outside bool) (worst *limitedConn) {
	for c := range l.open {
		if outside && c.local {
			continue
		}
		if worst == nil || !c.busy && worst.busy || c.busy == worst.busy && c.since.Before(worst.since) {
			worst = c
		}
	}
	return worst
}

// forget removes c, once. It requires mu.
func (l *limited) forget(c *limitedConn) {
	if _, is := l.open[c]; !is {
		return
	}
	delete(l.open, c)
	if c.local {
		l.local--
	}
}

// limitedConn is a connection of a limited.
type limitedConn struct {
	net.Conn
	of    *limited
	local bool // from this machine

	// Guarded by of.mu.
	busy  bool      // a whole request header section has come and is not answered
	since time.Time // of this state
}

// noteState is the server's ConnState.
func noteState(conn net.Conn, s http.ConnState) {
	if c, is := conn.(*limitedConn); is && (s == http.StateActive || s == http.StateIdle) {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.busy, c.since = s == http.StateActive, time.Now()
	}
}

// Close gives the place back.
func (c *limitedConn) Close() error {
	c.of.mu.Lock()
	c.of.forget(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// isLocal reports whether a connection comes from this machine.
func isLocal(conn net.Conn) bool {
	remote := conn.RemoteAddr()
	return remote.Network() == "unix" || isLoopbackAddr(remote.String())
}
