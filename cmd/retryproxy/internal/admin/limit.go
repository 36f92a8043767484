package admin

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// limited lets so many connections be open at once. Where all are taken, the
// one that has been without a whole head the longest gives way to the next caller,
// or else the one that has been busy with an answer the longest, but none that has had
// less than enough: whoever opens connections and says nothing on them keeps out nobody who asks.
type limited struct {
	net.Listener
	slots  chan struct{} // holds one value per open connection
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex // guards open and the states in it
	open map[*slotConn]struct{}
}

// Times of the limit.
const (
	// enough is for a head that comes with its connection to be read, and for a probe or a scrape
	// to be answered, also while the cores are taken.
	enough = 250 * time.Millisecond
	// lookAgain is how often a caller for whom nothing can give way looks again.
	lookAgain = 5 * time.Millisecond
)

func newLimited(l net.Listener, n int) *limited {
	return &limited{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{}), open: map[*slotConn]struct{}{}}
}

// Accept waits for a connection, then for a slot, for which it ends another
// connection where it can.
func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for {
		if len(l.slots) == cap(l.slots) {
			l.shed(time.Now())
		}
		select {
		case l.slots <- struct{}{}:
			return l.admit(conn), nil
		case <-l.closed:
			_ = conn.Close()
			return nil, net.ErrClosed
		case <-time.After(lookAgain):
		}
	}
}

func (l *limited) admit(conn net.Conn) net.Conn {
	c := &slotConn{Conn: conn, of: l, since: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	return c
}

// noteState is the server's ConnState: a connection is busy from its request's
// whole head until it is answered.
func noteState(conn net.Conn, s http.ConnState) {
	if c, is := conn.(*slotConn); is && (s == http.StateActive || s == http.StateIdle) {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.busy, c.since = s == http.StateActive, time.Now()
	}
}

// shed closes the connection that is to give way, if one is.
func (l *limited) shed(now time.Time) {
	if c := l.dispensable(now); c != nil {
		_ = c.Close() // whoever is at the other end has waited for nothing
	}
}

func (l *limited) dispensable(now time.Time) (worst *slotConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if now.Sub(c.since) < enough {
			continue
		}
		if worst == nil || worst.busy && !c.busy || worst.busy == c.busy && c.since.Before(worst.since) {
			worst = c
		}
	}
	return worst
}

// Close ends a waiting Accept as well.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type slotConn struct {
	net.Conn
	of   *limited
	once sync.Once

	busy  bool      // guarded by of.mu
	since time.Time // likewise: of this state
}

// Close gives the slot back, once.
func (c *slotConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
		<-c.of.slots
	})
	return err
}
