package proxy

import (
	"sync"
	"sync/atomic"
)

// connections is the set of connected clients. It is safe for concurrent use.
type connections struct {
	mu     sync.Mutex // guards served
	served map[*conn]struct{}

	count      atomic.Int64   // connected, parked or not
	ends       sync.WaitGroup // of the connected clients
	goroutines sync.WaitGroup // that serve the connections
	killed     atomic.Bool
}

// serve serves a connection that each and kill can reach.
func (cs *connections) serve(c *conn) {
	cs.mu.Lock()
	cs.served[c] = struct{}{}
	cs.mu.Unlock()
	if cs.killed.Load() {
		_ = c.client.Wire.Close() // kill may have missed it
	}
	defer func() {
		cs.mu.Lock()
		delete(cs.served, c)
		cs.mu.Unlock()
	}()
	c.serve()
}

// each calls f for every connection that is served, and then for the streams on it.
func (cs *connections) each(f func(*conn)) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.served {
		f(c)
		c.http2.Load().each(f)
	}
}

// kill closes all connections, and those that come later.
func (cs *connections) kill() {
	cs.killed.Store(true)
	cs.each(func(c *conn) { _ = c.client.Wire.Close() })
}

// empty reports whether no client is connected.
func (cs *connections) empty() bool { return cs.count.Load() == 0 }
