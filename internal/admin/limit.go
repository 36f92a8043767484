package admin

import (
	"bytes"
	"net"
	"net/http"
	"sync"
	"time"
)

// limited bounds the number of open connections. When all slots are taken, one connection is closed
// for the next: the oldest that has not sent a request, or else the oldest idle one, or else one that
// sent a request before the response to the last one, or else the oldest whose response has had enough
// time. So neither connections without a request nor those that send many keep out a probe or a scrape.
type limited struct {
	net.Listener
	slots int

	mu   sync.Mutex // guards open, and state and since of its connections
	open map[*slotConn]struct{}
}

const (
	// enough is the time for the response to a probe or a scrape, even if the cores are busy.
	enough = 250 * time.Millisecond
	// lookAgain is how often Accept looks for a slot while all connections wait for a response, and
	// none has waited long enough.
	lookAgain = 5 * time.Millisecond
)

func newLimited(l net.Listener, slots int) *limited {
	deferAccept(l)
	return &limited{Listener: l, slots: slots, open: map[*slotConn]struct{}{}}
}

// Accept returns the next connection, when it has a slot. It waits for one no longer than enough.
func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &slotConn{Conn: conn, of: l, since: time.Now()}
	if hasRequest(conn) {
		c.state = answering
	}
	for !l.admit(c) {
		time.Sleep(lookAgain)
	}
	return c, nil
}

// admit gives c a slot, and closes another connection for it if it must. It reports false if no
// connection may be closed yet.
func (l *limited) admit(c *slotConn) bool {
	out, ok := l.enter(c)
	if out != nil {
		_ = out.Conn.Close()
	}
	return ok
}

// enter is admit without closing the connection that c replaces, which it returns.
func (l *limited) enter(c *slotConn) (out *slotConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.slots {
		if out = l.dispensable(time.Now()); out == nil {
			return nil, false
		}
		delete(l.open, out)
	}
	l.open[c] = struct{}{}
	return out, true
}

// dispensable returns the connection to close for another one, or nil if there is none. It is called
// with mu held.
func (l *limited) dispensable(now time.Time) (worst *slotConn) {
	for c := range l.open {
		if c.state == answering && now.Sub(c.since) < enough {
			continue
		}
		if worst == nil || c.state < worst.state || c.state == worst.state && c.since.Before(worst.since) {
			worst = c
		}
	}
	return worst
}

// connState is what a connection is doing, in the order in which connections are closed for others.
type connState uint8

const (
	silent     connState = iota // complete request headers have never arrived
	idle                        // the response was sent, and no request has followed
	pipelining                  // it sent a request before the response to the last one, which no probe or scrape does; for good
	answering                   // complete request headers have arrived, and the response was not sent
)

// slotConn is a connection with a slot.
type slotConn struct {
	net.Conn
	of    *limited
	state connState
	since time.Time // of the state
}

func (c *slotConn) set(s connState) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.state != s && c.state != pipelining {
		c.state, c.since = s, time.Now()
	}
}

// noteState is the server's ConnState hook. The server reports StateActive after it has parsed the
// headers of a request, and StateIdle after it has sent the response.
func noteState(conn net.Conn, s http.ConnState) {
	c, is := conn.(*slotConn)
	switch {
	case !is:
	case s == http.StateActive:
		c.set(answering)
	case s == http.StateIdle:
		c.set(idle)
	}
}

var endOfHeaders = []byte("\r\n\r\n")

// Read detects complete headers before the server parses them.
func (c *slotConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch bytes.Count(p[:n], endOfHeaders) {
	case 0:
	case 1:
		c.set(answering)
	default:
		c.set(pipelining)
	}
	return n, err
}

// Close frees the slot.
func (c *slotConn) Close() error {
	err := c.Conn.Close()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.open, c)
	return err
}
