// Package slots bounds the clients connected at once, by number and by the memory that they use, and
// orders them by progress for the case that there are too many.
//
// A client takes a Slot when it connects and is charged for the stage that it has reached: little
// before its first request, more with a request in flight, almost nothing while it is parked.
// Newcomers have memory of their own, so that they neither take the room of those that are served nor
// wait for it.
package slots

import (
	"sync"
	"sync/atomic"
	"time"
)

// Table has the slots of a process. It is safe for concurrent use.
type Table struct {
	most   int64         // clients; 0: any number
	memory int64         // bytes; 0: not bounded
	freed  chan struct{} // a slot may have become free; capacity 1

	mu        sync.Mutex // guards changes of all below
	clients   atomic.Int64
	served    atomic.Int64 // bytes of those that are served or parked
	newcomers atomic.Int64 // bytes of those that were not charged again since Take
	waiting   [ranks][]*Waiter
}

// newcomersPart is the divisor of the memory that gives the memory for newcomers, in addition to it.
// At 64 MiB that is room for some 480, so that each has a fair time for its handshake and headers.
const newcomersPart = 2

// Slot is the slot of one client. Its methods are safe for concurrent use.
type Slot struct {
	cost   atomic.Int64
	served atomic.Bool // it was charged since Take
	over   bool        // it was released; guarded by the Table's mu

	queued time.Duration // it waited before it got the slot; used by its next Wait

	Progress Progress // of the client
}

// Cost returns what the client is charged, in bytes.
func (s *Slot) Cost() int64 { return s.cost.Load() }

// Served reports whether the client was charged since Take. If not, it holds memory of newcomers.
func (s *Slot) Served() bool { return s.served.Load() }

// New returns a Table for at most that many clients, and that many bytes of memory; 0 means no
// bound.
func New(most int, memory int64) *Table {
	return &Table{most: int64(most), memory: memory, freed: make(chan struct{}, 1)}
}

// Bounds reports whether the Table bounds anything.
func (t *Table) Bounds() bool { return t.most > 0 || t.memory > 0 }

// BoundsMemory reports whether the Table bounds memory.
func (t *Table) BoundsMemory() bool { return t.memory > 0 }

// Most returns how many clients have a slot at most; 0 means any number.
func (t *Table) Most() int { return int(t.most) }

// Freed returns a channel with an element after a slot may have become free.
func (t *Table) Freed() <-chan struct{} { return t.freed }

// Take takes a slot for a newcomer of the given cost. It returns nil if none is free. The first
// client always gets one.
func (t *Table) Take(cost int64) *Slot { return t.TakeAfter(0, cost) }

// TakeAfter is like Take, for a newcomer that has waited for so long.
func (t *Table) TakeAfter(queued time.Duration, cost int64) *Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.clients.Load(); t.most > 0 && n >= t.most || n > 0 && t.isShortForNewcomer(cost) {
		return nil
	}
	s := t.take(cost)
	s.queued = queued
	return s
}

// isShortForNewcomer reports whether a newcomer of the given cost is too much. It is called with mu
// held.
func (t *Table) isShortForNewcomer(cost int64) bool {
	return t.memory > 0 && t.newcomers.Load() > 0 && t.newcomers.Load()+cost > t.memory/newcomersPart
}

// Force takes a slot even if none is free.
func (t *Table) Force(cost int64) *Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(cost)
}

func (t *Table) take(cost int64) *Slot {
	t.clients.Add(1)
	t.newcomers.Add(cost)
	s := &Slot{}
	s.cost.Store(cost)
	return s
}

// uncharge takes back what s is charged. It is called with mu held.
func (t *Table) uncharge(s *Slot) {
	if cost := s.cost.Swap(0); s.served.Load() {
		t.served.Add(-cost)
	} else {
		t.newcomers.Add(-cost)
	}
}

// charge charges s cost in place of what it is charged. It is called with mu held.
func (t *Table) charge(s *Slot, cost int64) {
	t.uncharge(s)
	t.served.Add(cost)
	s.cost.Store(cost)
	s.served.Store(true)
}

// Leave takes back what the owner of s is charged, because it is evicted. The memory that it takes
// until it is gone is others' from now on, so that they need not wait for its end. s still counts as
// a client. Leave returns the bytes. If the owner is served after all, it is charged again.
func (t *Table) Leave(s *Slot) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	had := s.cost.Load()
	t.uncharge(s)
	t.signal()
	return had
}

// Release returns s to the table. s may not be used after that, except by Leave.
func (t *Table) Release(s *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients.Add(-1)
	t.uncharge(s)
	s.over = true
	t.signal()
}

// Charge changes what the owner of s is charged, whether or not there is room. It is no newcomer any
// more.
func (t *Table) Charge(s *Slot, cost int64) {
	if s.Served() && cost == s.Cost() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.over {
		t.charge(s, cost)
		t.signal()
	}
}

// TryCharge is like Charge, but changes nothing if there is no room, or if clients of a lower rank wait for
// it. It reports whether there was: to be charged less is always possible, and so is everything for the
// only client.
func (t *Table) TryCharge(s *Slot, cost int64, rank Rank) bool {
	if s.Served() && cost <= s.Cost() {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waitsBefore(rank) || !t.fits(s, cost) {
		return false
	}
	newcomer := !s.Served()
	if t.charge(s, cost); newcomer {
		t.signal()
	}
	return true
}

// fits reports whether there is room to charge the owner of s cost. It is called with mu held.
func (t *Table) fits(s *Slot, cost int64) bool {
	has := int64(0)
	if s.Served() {
		has = s.Cost()
	}
	return t.memory <= 0 || t.clients.Load() <= 1 || t.served.Load()+cost-has <= t.memory
}

// ShortOfMemory reports whether memory, not the number of clients, rejects a newcomer of the given
// cost.
func (t *Table) ShortOfMemory(cost int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clients.Load() > 0 && t.isShortForNewcomer(cost)
}

// UnderPressure reports whether more than a quarter of the memory is used. Buffers then stay small,
// because a client that reads nothing keeps them.
func (t *Table) UnderPressure() bool { return t.uses(1, 4, 0) }

// Plentiful reports whether at most half of the slots and of the memory is used.
func (t *Table) Plentiful() bool { return !t.uses(1, 2, t.most) }

// Short reports whether more than three quarters of the slots or of the memory are used.
func (t *Table) Short() bool { return t.uses(3, 4, t.most) }

// Exceeds reports whether n bytes are more than one in so many parts of the memory.
func (t *Table) Exceeds(n, parts int64) bool { return t.memory > 0 && n > t.memory/parts }

// uses reports whether more than p of q parts of the memory, or of most slots, are used. A bound of 0
// is none.
func (t *Table) uses(p, q, most int64) bool {
	return t.memory > 0 && (t.served.Load() > t.memory/q*p || t.newcomers.Load() > t.memory/newcomersPart/q*p) || most > 0 && t.clients.Load()*q > most*p
}

// MostUploads returns how many clients of the given cost may send bodies at once: three quarters of
// those that may be served. The others are for requests that need no body. 0 means any number.
func (t *Table) MostUploads(cost int64) int {
	n := t.most - t.most/4
	if byMemory := max(t.memory/4*3/max(cost, 1), 1); t.memory > 0 && (n == 0 || byMemory < n) {
		n = byMemory
	}
	return int(n)
}

// signal says that something may have become free. It is called with mu held.
func (t *Table) signal() {
	t.grant()
	select {
	case t.freed <- struct{}{}:
	default:
	}
}
