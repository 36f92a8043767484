package admin

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/accepting"
)

// limited bounds the number of open connections. Connections without a request cannot keep out
// those with one. When all slots are taken, one connection is closed for the next. The oldest
// without a complete request header section is closed first. Then follow an idle one, one that
// sends another request before its response, and last, one with a response in flight that has had
// enough time. Some slots are reserved for programs on this machine, such as probes by command.
type limited struct {
	*accepting.Listener
	most    int // maximum of open connections
	outside int // maximum of them from other machines
	began   sync.Once
	ended   sync.Once
	ready   chan accepted
	closed  chan struct{}
	wg      sync.WaitGroup // run
	waiters sync.WaitGroup // the connections that wait for a slot

	mu      sync.Mutex // guards the fields below and the states in open
	open    map[*slotConn]struct{}
	local   int // of open
	waiting int // for a slot
}

// accepted is the next result of Accept.
type accepted struct {
	conn net.Conn
	err  error
}

// Times and limits.
const (
	// enough is the time for the response to a probe or a scrape, even if the cores are busy.
	enough = 250 * time.Millisecond
	// lookAgain is how often a connection checks for a free slot if none can be freed for it;
	// after longestWait it is closed.
	lookAgain   = 5 * time.Millisecond
	longestWait = 2 * time.Second
	// mostWaiting is how many connections may wait for a slot; further ones are closed at once.
	mostWaiting = 128
	// localShare reserves slots, one in so many, for this machine.
	localShare = 8
)

func newLimited(l net.Listener, n int) *limited {
	deferAccept(l)
	return &limited{
		Listener: accepting.Wrap(l), most: n, outside: n - n/localShare,
		ready: make(chan accepted), closed: make(chan struct{}), open: map[*slotConn]struct{}{},
	}
}

// Accept returns the next connection that has a slot.
func (l *limited) Accept() (net.Conn, error) {
	l.began.Do(func() { l.wg.Go(l.run) })
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// run accepts without waiting for a slot, so that no connection waits in the system's queue behind
// those that get none.
func (l *limited) run() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				l.waiters.Wait()
				l.give(accepted{err: err})
				return
			}
			l.give(accepted{err: err})
			continue
		}
		c := &slotConn{Conn: conn, of: l, local: isLocal(conn), since: time.Now(), asked: asks(conn)}
		if l.admit(c) {
			l.give(accepted{conn: c})
		} else {
			l.wait(c)
		}
	}
}

// give passes a to Accept.
func (l *limited) give(a accepted) {
	select {
	case l.ready <- a:
	case <-l.closed:
		if a.conn != nil {
			_ = a.conn.Close()
		}
	}
}

// wait waits for a slot for c, concurrently with other connections.
func (l *limited) wait(c *slotConn) {
	l.mu.Lock()
	crowded := l.waiting >= mostWaiting || !c.asked && l.waiting >= mostWaiting/2
	if !crowded {
		l.waiting++
	}
	l.mu.Unlock()
	if crowded {
		_ = c.Conn.Close()
		return
	}
	l.waiters.Go(func() {
		defer l.waits(-1)
		for range longestWait / lookAgain {
			select {
			case <-l.closed:
				_ = c.Conn.Close()
				return
			case <-time.After(lookAgain):
			}
			if l.admit(c) {
				l.give(accepted{conn: c})
				return
			}
		}
		_ = c.Conn.Close()
	})
}

func (l *limited) waits(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting += n
}

// admit gives c a slot, and closes another connection for it if it must and can. It reports false
// if there is no slot.
func (l *limited) admit(c *slotConn) bool {
	l.mu.Lock()
	var out *slotConn
	full := l.full(c)
	if full {
		if out = l.dispensable(c, time.Now()); out != nil {
			l.forget(out)
			full = l.full(c)
		}
	}
	if !full {
		l.open[c] = struct{}{}
		if c.local {
			l.local++
		}
	}
	l.mu.Unlock()
	if out != nil {
		_ = out.Conn.Close()
	}
	return !full
}

// full reports whether no slot is free for c. It is called with mu held.
func (l *limited) full(c *slotConn) bool {
	return len(l.open) >= l.most || !c.local && len(l.open)-l.local >= l.outside
}

// dispensable returns the connection to close so that c gets a slot, or nil if there is none. It
// is called with mu held.
func (l *limited) dispensable(c *slotConn, now time.Time) (worst *slotConn) {
	for o := range l.open {
		if !c.local && o.local && len(l.open)-l.local >= l.outside {
			continue // its slot would not be available to c
		}
		if o.rank() == rankAnswering && now.Sub(o.since) < enough {
			continue
		}
		if worst == nil || o.rank() < worst.rank() || o.rank() == worst.rank() && o.since.Before(worst.since) {
			worst = o
		}
	}
	return worst
}

// forget frees the slot of c, once. It is called with mu held.
func (l *limited) forget(c *slotConn) {
	if _, is := l.open[c]; !is {
		return
	}
	delete(l.open, c)
	if c.local {
		l.local--
	}
}

// Close also ends a waiting Accept.
func (l *limited) Close() error {
	l.ended.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	l.wg.Wait()
	return err
}

// noteState is the server's ConnState hook: a connection is busy from the end of its request's
// headers until the response was sent.
func noteState(conn net.Conn, s http.ConnState) {
	if c, is := conn.(*slotConn); is && (s == http.StateActive || s == http.StateIdle) {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.busy, c.idle, c.asked, c.since = s == http.StateActive, s == http.StateIdle, false, time.Now()
	}
}

// slotConn is a connection with a slot.
type slotConn struct {
	net.Conn
	of    *limited
	local bool // from this machine

	// Guarded by of.mu.
	busy  bool      // a response is in flight
	idle  bool      // the response was sent, and no request came since
	asked bool      // complete headers have arrived and were not parsed yet
	since time.Time // of this state

	pipelines bool // it sent another request before its response, which no probe or scrape does
}

// The order in which connections are closed for others.
const (
	rankNoHead = iota
	rankIdle
	rankGreedy // a response is in flight, and it sent another request
	rankAnswering
)

func (c *slotConn) rank() int {
	switch {
	case (c.busy || c.asked) && c.pipelines:
		return rankGreedy
	case c.busy || c.asked:
		return rankAnswering
	case c.idle:
		return rankIdle
	}
	return rankNoHead
}

var endOfHead = []byte("\r\n\r\n")

// Read detects complete headers before the server parses them.
func (c *slotConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if heads := bytes.Count(p[:n], endOfHead); heads > 0 {
		c.of.mu.Lock()
		c.pipelines = c.pipelines || heads > 1
		if c.rank() < rankGreedy {
			c.asked, c.since = true, time.Now()
		}
		c.of.mu.Unlock()
	}
	return n, err
}

// Close frees the slot.
func (c *slotConn) Close() error {
	err := c.Conn.Close()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.forget(c)
	return err
}

// isLocal reports whether a connection comes from this machine.
func isLocal(conn net.Conn) bool {
	remote := conn.RemoteAddr()
	return remote.Network() == "unix" || isLoopbackAddr(remote.String())
}
