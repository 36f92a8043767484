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
}

// newcomersPart is the divisor of the memory that gives the memory for newcomers, in addition to it.
// At 64 MiB that is room for some 240, of whom slow ones leave after 100 ms.
const newcomersPart = 4

// Slot is the slot of one client, which owns it. The zero Slot is not in a Table.
type Slot struct {
	cost   int64
	served bool // it was charged since Take
}

// Cost returns what the client is charged, in bytes.
func (s *Slot) Cost() int64 { return s.cost }

// New returns a Table for at most that many clients, and that many bytes of memory; 0 means no
// bound.
func New(most int, memory int64) *Table {
	return &Table{most: int64(most), memory: memory, freed: make(chan struct{}, 1)}
}

// BoundsMemory reports whether the Table bounds memory.
func (t *Table) BoundsMemory() bool { return t.memory > 0 }

// Most returns how many clients have a slot at most; 0 means any number.
func (t *Table) Most() int { return int(t.most) }

// Freed returns a channel with an element after a slot may have become free.
func (t *Table) Freed() <-chan struct{} { return t.freed }

// Take takes a slot for a newcomer of the given cost. It reports false if none is free. The first
// client always gets one.
func (t *Table) Take(cost int64) (Slot, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.clients.Load(); t.most > 0 && n >= t.most || n > 0 && t.isShortForNewcomer(cost) {
		return Slot{}, false
	}
	return t.take(cost), true
}

// isShortForNewcomer reports whether a newcomer of the given cost is too much. It is called with mu
// held.
func (t *Table) isShortForNewcomer(cost int64) bool {
	return t.memory > 0 && t.newcomers.Load() > 0 && t.newcomers.Load()+cost > t.memory/newcomersPart
}

// Force takes a slot even if none is free.
func (t *Table) Force(cost int64) Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(cost)
}

func (t *Table) take(cost int64) Slot {
	t.clients.Add(1)
	t.newcomers.Add(cost)
	return Slot{cost: cost}
}

// uncharge takes back what s is charged. It is called with mu held.
func (t *Table) uncharge(s *Slot) {
	if s.served {
		t.served.Add(-s.cost)
	} else {
		t.newcomers.Add(-s.cost)
	}
}

// charge charges s cost in place of what it is charged. It is called with mu held.
func (t *Table) charge(s *Slot, cost int64) {
	t.uncharge(s)
	t.served.Add(cost)
	s.cost, s.served = cost, true
}

// Release returns s to the table.
func (t *Table) Release(s *Slot) {
	t.mu.Lock()
	t.clients.Add(-1)
	t.uncharge(s)
	t.mu.Unlock()
	*s = Slot{}
	t.signal()
}

// Charge changes what the owner of s is charged, whether or not there is room. It is no newcomer any
// more.
func (t *Table) Charge(s *Slot, cost int64) {
	if s.served && cost == s.cost {
		return
	}
	t.mu.Lock()
	t.charge(s, cost)
	t.mu.Unlock()
	t.signal()
}

// TryCharge is like Charge, but changes nothing if there is no room. It reports whether there was: to
// be charged less is always possible, and so is everything for the only client.
func (t *Table) TryCharge(s *Slot, cost int64) bool {
	if s.served && cost <= s.cost {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	has := int64(0)
	if s.served {
		has = s.cost
	}
	if t.memory > 0 && t.clients.Load() > 1 && t.served.Load()+cost-has > t.memory {
		return false
	}
	if t.charge(s, cost); has == 0 {
		t.signal()
	}
	return true
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

func (t *Table) signal() {
	select {
	case t.freed <- struct{}{}:
	default:
	}
}
