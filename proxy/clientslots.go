package proxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// clientSlots bounds the clients connected at once, by their number and by the memory that they
// may need. Safe for concurrent use.
type clientSlots struct {
	max    int64         // 0: any number
	memory int64         // bytes; 0: not bounded
	freed  chan struct{} // a slot may have become free; room for one note

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

// shortOfMemory reports whether cost more bytes are too many. The first client
// always has room. Called with mu held.
func (l *clientSlots) shortOfMemory(cost int64) bool {
	return l.memory > 0 && l.n > 0 && l.inUse.Load()+cost > l.memory
}

// memoryBound reports whether memory, not the number of clients, keeps out a client of the given
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

// underPressure reports whether more than a quarter of the memory is used. Buffers stay small
// then, since a client that takes nothing keeps them.
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

// recharge changes what a client costs.
func (l *clientSlots) recharge(from, to int64) {
	l.mu.Lock()
	l.inUse.Add(to - from)
	l.mu.Unlock()
	if to < from {
		l.signalFreed()
	}
}

// tryRecharge raises what a client costs, if there is room for it.
func (l *clientSlots) tryRecharge(from, to int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.memory > 0 && l.inUse.Load()+to-from > l.memory {
		return false
	}
	l.inUse.Add(to - from)
	return true
}

// awaken waits for the memory that a parked client needs when it is active again.
func (s *Server) awaken() {
	for !s.clients.tryRecharge(s.costs.parked, s.costs.plain) {
		s.evict(1, true)
		select {
		case <-time.After(evictEvery):
		case <-s.closing:
			s.clients.recharge(s.costs.parked, s.costs.plain)
			return
		}
	}
}
