package admin

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// limited lets so many connections be open at once. Whoever opens connections
// and asks nothing on them keeps out nobody who asks: when all slots are taken,
// a connection without a whole request header section is closed at once for the next one,
// the oldest first, then an idle one, then one that asks for more before it is answered, and one with
// another response in flight last and only after it has had enough time. Some slots are only for this machine's own
// programs, as probes by command are.
type limited struct {
	net.Listener
	most    int // open at once
	outside int // of them at most, from other machines
	began   sync.Once
	ended   sync.Once
	ready   chan accepted
	closed  chan struct{}
	wg      sync.WaitGroup // run, and those that wait

	mu      sync.Mutex // guards what follows and the states in open
	open    map[*slotConn]struct{}
	local   int // of open
	waiting int // for a slot
}

// accepted is what Accept returns next.
type accepted struct {
	conn net.Conn
	err  error
}

// Times and bounds of the limit.
const (
	// enough is for a probe or a scrape to be answered, also while the cores are taken.
	enough = 250 * time.Millisecond
	// lookAgain is how often a connection looks again for a slot, when none can be
	// freed for it; after longestWait it is closed.
	lookAgain   = 5 * time.Millisecond
	longestWait = 2 * time.Second
	// mostWaiting connections wait for a slot; more are closed at once.
	mostWaiting = 128
	// localShare of the slots, one in so many, is only for this machine.
	localShare = 8
)

func newLimited(l net.Listener, n int) *limited {
	deferAccept(l)
	return &limited{
		Listener: l, most: n, outside: n - n/localShare,
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

// run accepts without ever waiting for a slot, so that nobody waits in the
// system's queue behind those that get none.
func (l *limited) run() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			l.give(accepted{err: err})
			if errors.Is(err, net.ErrClosed) {
				return
			}
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

// give hands a to Accept.
func (l *limited) give(a accepted) {
	select {
	case l.ready <- a:
	case <-l.closed:
		if a.conn != nil {
			_ = a.conn.Close()
		}
	}
}

// wait waits for a slot for c beside all others.
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
	l.wg.Go(func() {
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

// admit gives c a slot, for which it closes another connection if it has to and
// can; false: there is none.
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

// full reports whether no slot is free for c. Called with mu held.
func (l *limited) full(c *slotConn) bool {
	return len(l.open) >= l.most || !c.local && len(l.open)-l.local >= l.outside
}

// dispensable returns the connection to close so that c gets a slot, nil for
// none. Called with mu held.
func (l *limited) dispensable(c *slotConn, now time.Time) (worst *slotConn) {
	for o := range l.open {
		if !c.local && o.local && len(l.open)-l.local >= l.outside {
			continue // its slot would not be c's to take
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

// forget frees the slot of c, once. Called with mu held.
func (l *limited) forget(c *slotConn) {
	if _, is := l.open[c]; !is {
		return
	}
	delete(l.open, c)
	if c.local {
		l.local--
	}
}

// Close ends a waiting Accept as well.
func (l *limited) Close() error {
	l.ended.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	l.wg.Wait()
	return err
}

// noteState is the server's ConnState: a connection is busy from its request's
// whole head until it is answered.
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
	busy  bool      // answering
	idle  bool      // answered, and nothing asked since
	asked bool      // a whole head has come and was not yet looked at
	since time.Time // of this state

	pipelines bool // it asked again before it was answered, which no probe or scrape does
}

// The order in which connections are closed for others.
const (
	rankNoHead = iota
	rankIdle
	rankGreedy // answering, and asked for more meanwhile
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

// Read notes that a head is whole, before the server has parsed it.
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

// Close gives the slot back.
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
