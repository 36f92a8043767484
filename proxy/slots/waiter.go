package slots

import (
	"slices"
	"time"
)

// Rank is the order in which clients that wait for memory get it: the lowest goes first.
type Rank uint8

const (
	Request    Rank = iota // a request that needs no more than its response
	Upload                 // a request whose body is to come
	Newcomer               // a client that was parked before it had sent anything
	Connection             // an HTTP/2 connection, whose requests may come on another one
	ranks
)

// Waiter is a client that waits for memory. Its methods are safe for concurrent use.
type Waiter struct {
	slot *Slot
	cost int64
	rank Rank
	came time.Duration // when its client began to wait, for the slot or for memory

	over    chan struct{} // closed when it was charged or rejected
	charged bool          // set before over is closed
}

// Over returns a channel that is closed when the wait is over.
func (w *Waiter) Over() <-chan struct{} { return w.over }

// IsOver reports whether the wait is over.
func (w *Waiter) IsOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// Charged reports whether the client was charged. It is valid when the wait is over.
func (w *Waiter) Charged() bool { return w.charged }

// Wait has the owner of s charged cost as soon as there is room. What becomes free goes to the lowest rank
// first, and within it to the client that came last: among many, it is the most likely to be still
// connected. So a request waits neither for new connections nor for those that have nearly given up. A
// client that waited for its slot came before that: it does not overtake those that came meanwhile. now
// is the time since the start of the process. The caller calls GiveUp if it does not wait to the end.
func (t *Table) Wait(s *Slot, cost int64, rank Rank, now time.Duration) *Waiter {
	w := &Waiter{slot: s, cost: cost, rank: rank, came: now - s.queued, over: make(chan struct{})}
	s.queued = 0
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.waiting[rank]
	at := len(all)
	for at > 0 && all[at-1].came > w.came {
		at--
	}
	t.waiting[rank] = slices.Insert(all, at, w)
	t.grant()
	return w
}

// GiveUp ends the wait of w. It reports true if w was charged before.
func (t *Table) GiveUp(w *Waiter) (charged bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !w.IsOver() {
		t.end(w, false)
		t.grant() // another one may need less
	}
	return w.charged
}

// Reject ends the wait of the client that waits longest with that rank and that holds memory of newcomers,
// because other newcomers need it. That is free from then on, as after Leave. It reports whether there was
// one.
func (t *Table) Reject(rank Rank) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.waiting[rank] {
		if !w.slot.Served() {
			t.uncharge(w.slot)
			t.end(w, false)
			return true
		}
	}
	return false
}

// Waiting returns how many clients wait.
func (t *Table) Waiting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, all := range t.waiting {
		n += len(all)
	}
	return n
}

// grant charges those that wait, as far as there is room. It is called with mu held.
func (t *Table) grant() {
	for w := t.first(); w != nil && t.fits(w.slot, w.cost); w = t.first() {
		t.charge(w.slot, w.cost)
		t.end(w, true)
	}
}

// first returns the client that is next; nil if none waits. It is called with mu held.
func (t *Table) first() *Waiter {
	for _, all := range t.waiting {
		if n := len(all); n > 0 {
			return all[n-1]
		}
	}
	return nil
}

// waitsBefore reports whether a client waits that goes before one of the given rank. It is called with mu
// held.
func (t *Table) waitsBefore(rank Rank) bool {
	w := t.first()
	return w != nil && w.rank < rank
}

// end ends a wait. It is called with mu held.
func (t *Table) end(w *Waiter, charged bool) {
	t.waiting[w.rank] = slices.DeleteFunc(t.waiting[w.rank], func(o *Waiter) bool { return o == w })
	w.charged = charged
	close(w.over)
}
