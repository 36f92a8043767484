package proxy

import (
	"sync"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/proxy/bridge"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// clientSlots bounds the clients connected at once, by number and by the memory that they may
// need. It is safe for concurrent use.
type clientSlots struct {
	max    int64         // 0: any number
	memory int64         // bytes; 0: not bounded
	freed  chan struct{} // a slot may have become free; capacity 1

	mu    sync.Mutex // guards n, and changes of inUse
	n     int64
	inUse atomic.Int64 // bytes
}

func newClientSlots(most int, memory int64) *clientSlots {
	return &clientSlots{max: int64(most), memory: memory, freed: make(chan struct{}, 1)}
}

// take takes a slot for a client of the given cost. It reports false if none is free.
func (l *clientSlots) take(cost int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.max > 0 && l.n >= l.max || l.shortOfMemory(cost) {
		return false
	}
	l.n++
	l.inUse.Add(cost)
	return true
}

// shortOfMemory reports whether cost more bytes are too many. The first client always has room. It
// is called with mu held.
func (l *clientSlots) shortOfMemory(cost int64) bool {
	return l.memory > 0 && l.n > 0 && l.inUse.Load()+cost > l.memory
}

// memoryBound reports whether memory, not the number of clients, rejects a client of the given
// cost.
func (l *clientSlots) memoryBound(cost int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shortOfMemory(cost)
}

// force takes a slot even if none is free.
func (l *clientSlots) force(cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	l.inUse.Add(cost)
}

// underPressure reports whether more than a quarter of the memory is used. Buffers then stay
// small, because a client that reads nothing keeps them.
func (l *clientSlots) underPressure() bool {
	return l.memory > 0 && l.inUse.Load() > l.memory/4
}

// release returns the slot of a client of the given cost.
func (l *clientSlots) release(cost int64) {
	l.mu.Lock()
	l.n--
	l.inUse.Add(-cost)
	l.mu.Unlock()
	l.signalFreed()
}

// signalFreed wakes one client that waits for a slot.
func (l *clientSlots) signalFreed() {
	poke(l.freed)
}

// recharge changes a client's cost.
func (l *clientSlots) recharge(from, to int64) {
	l.mu.Lock()
	l.inUse.Add(to - from)
	l.mu.Unlock()
	if to < from {
		l.signalFreed()
	}
}

// tryRecharge raises a client's cost if there is room. It reports whether there was.
func (l *clientSlots) tryRecharge(from, to int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.memory > 0 && l.inUse.Load()+to-from > l.memory {
		return false
	}
	l.inUse.Add(to - from)
	return true
}

// The memory that one client needs, in bytes. These are estimates of how much the resident set
// grows, garbage included. 700 to 1700 clients under GOMEMLIMIT=256MiB took 29 KiB each over
// HTTP/1.1 with a request in flight, 34 to 55 KiB over TLS, and 0.8 to 5 KiB parked.
const (
	plainCost   = 36 << 10 // HTTP/1.1 with a request in flight: two goroutines, buffers, its connection upstream
	secureCost  = 48 << 10 // the same over TLS
	parkedCost  = 2 << 10
	http2Cost   = 64 << 10 // plus half a stream's window
	streamCost  = 64 << 10 // a stream with a request in flight
	handlerCost = 12 << 10 // a stream that waits for its slot, or is being rejected
)

// clientCosts are the costs charged for clients; all are zero if memory is not bounded.
type clientCosts struct {
	plain, secure, parked, http2 int64
}

func costsOf(memory int64) clientCosts {
	if memory <= 0 {
		return clientCosts{}
	}
	return clientCosts{plainCost, secureCost, parkedCost, http2Cost + int64(streamWindow(memory))/2}
}

// accepted returns the cost of a client that was just accepted.
func (k *clientCosts) accepted(n *settings.Settings) int64 {
	if n.ClientTLS != nil {
		return k.secure
	}
	return k.plain
}

// clientShare returns the part of the memory for clients that is for connections; the rest is for
// streams.
func clientShare(memory int64) int64 { return memory * 55 / 100 }

// maxStreams returns how many HTTP/2 streams may have a request in flight at once, over all
// clients; 0: any number.
func maxStreams(c *Config) int {
	if c.ClientMemory <= 0 {
		return c.MaxConnections
	}
	most := int((c.ClientMemory - clientShare(c.ClientMemory)) / (streamCost + (handlersPerSlot-1)*handlerCost))
	if c.MaxConnections > 0 {
		most = min(most, c.MaxConnections)
	}
	return max(most, 1)
}

// backlogPart is the divisor of the memory for clients that gives the bytes which may wait in HTTP/2
// streams for slow readers: 300 clients that read nothing under GOMEMLIMIT=64MiB.
const backlogPart = 4

// readAhead returns what peers may send by HTTP/2 before it is read; memory is that for clients.
func readAhead(memory int64) bridge.ReadAhead {
	return bridge.ReadAhead{Window: streamWindow(memory), Backlog: bridge.NewBacklog(memory / backlogPart)}
}

// streamWindow returns HTTP/2's window for a stream, in bytes.
func streamWindow(memory int64) int {
	if memory <= 0 {
		return upstream.DefaultStreamWindow
	}
	return int(min(max(clientShare(memory)/256, 64<<10), upstream.DefaultStreamWindow))
}

// recharge changes the cost of the connection.
func (c *conn) recharge(to int64) {
	if c.cost != to {
		c.server.clients.slots.recharge(c.cost, to)
		c.cost = to
	}
}
