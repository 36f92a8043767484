package admin

import (
	"net"
	"sync"
)

// limited lets so many connections be open at once; further ones wait in the
// kernel's queue until one closes.
type limited struct {
	net.Listener
	slots  chan struct{} // holds one value per open connection
	closed chan struct{}
	once   sync.Once
}

func newLimited(l net.Listener, n int) *limited {
	return &limited{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

// Accept waits for a slot, then for a connection.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slotConn{Conn: conn, slots: l.slots}, nil
}

// Close ends a waiting Accept as well.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type slotConn struct {
	net.Conn
	slots <-chan struct{}
	once  sync.Once
}

// Close gives the slot back, once.
func (c *slotConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.slots })
	return err
}
