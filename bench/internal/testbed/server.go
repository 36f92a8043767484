package testbed

import (
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// Server calls Take for each connection, in a goroutine of its own, and closes it then. It knows which ones are open.
type Server struct {
	Take func(net.Conn)

	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

// Accept takes the connections of l until it is closed or its deadline is over.
func (s *Server) Accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.open == nil {
			s.open = map[net.Conn]struct{}{}
		}
		s.open[c] = struct{}{}
		s.mu.Unlock()
		go func() {
			defer func() {
				_ = c.Close()
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.open, c)
			}()
			s.Take(c)
		}()
	}
}

// Each calls do for each open connection and returns their number.
func (s *Server) Each(do func(net.Conn)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		do(c)
	}
	return len(s.open)
}

// Wait waits until no connection is open, and no longer than limit.
func (s *Server) Wait(limit time.Duration) {
	for end := time.Now().Add(limit); s.Each(func(net.Conn) {}) > 0 && time.Now().Before(end); {
		time.Sleep(200 * time.Microsecond)
	}
}

// Reset ends a connection by a reset.
func Reset(c net.Conn) {
	if t, is := c.(*tls.Conn); is {
		c = t.NetConn()
	}
	if t, is := c.(*net.TCPConn); is {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
